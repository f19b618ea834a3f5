"""What a rank's parameters look like once their subject is gone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import torch
from torch import nn

from syncverify.materialize import LocalModel, local_part
from syncverify.run import Leftovers

Fingerprint = tuple[torch.Tensor, bool]


def fingerprints(parameters: Mapping[str, nn.Parameter]) -> dict[str, Fingerprint]:
    """Note what a subject must not change: values, and which parameters are trained."""
    return {
        name: (local_part(parameter).clone(), parameter.requires_grad)
        for name, parameter in parameters.items()
    }


def leftovers(model: LocalModel, original: Mapping[str, Fingerprint]) -> Leftovers:
    """Find what a subject has left on the parameters of a rank.

    Args:
        model: With the parameters.
        original: Their fingerprints as the training program last made them.

    Returns:
        What is left.
    """
    hooks = {name: _count_hooks(p) for name, p in model.parameters.items()}
    now = fingerprints(model.parameters)
    return Leftovers(
        hooks={name: count for name, count in hooks.items() if count},
        shared_gradients=_sharing_storage(model.local_gradients()),
        changed=tuple(name for name in now if not _same(now[name], original[name])),
    )


def _same(left: Fingerprint, right: Fingerprint) -> bool:
    return torch.equal(left[0], right[0]) and left[1] == right[1]


def _count_hooks(parameter: nn.Parameter) -> int:
    # torch keeps these dictionaries on every tensor: its own way to list hooks, since
    # there is no public one (torch/_tensor.py, register_post_accumulate_grad_hook).
    registries = (
        parameter._post_accumulate_grad_hooks,  # noqa: SLF001
        parameter._backward_hooks,  # noqa: SLF001
    )
    return sum(len(registry) for registry in registries if registry)


def _sharing_storage(gradients: dict[str, torch.Tensor]) -> tuple[str, ...]:
    sharing: set[str] = set()
    for (one, first), (other, second) in itertools.combinations(gradients.items(), 2):
        same = first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        if same and first.numel() and second.numel():
            sharing |= {one, other}
    return tuple(name for name in gradients if name in sharing)
