"""The tensors of a model on a rank, by the names of the plain model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from syncverify.judge.whole_step.shards import splits
from syncverify.judge.whole_step.values import StateName

# Prefixes that wrappers put into the names of parameters.
_WRAPPERS: Final = ("_orig_mod.", "_checkpoint_wrapped_module.", "module.")


def plain_names(model: nn.Module) -> dict[str, str]:
    """Return the first name of each parameter of a plain model, by all of its names.

    Tied weights have several names.
    """
    first, names = dict[nn.Parameter, str](), dict[str, str]()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[name] = first.setdefault(parameter, name)
    return names


def by_first_names(
    parameters: Mapping[str, nn.Parameter], names: Mapping[str, str]
) -> dict[str, nn.Parameter]:
    """Return parameters of a rank, those of tied weights by their first name.

    A stage of a pipeline may have a tied weight under its second name alone. A rank that has
    two parameters where the plain model has one keeps both names.
    """
    found = dict(parameters)
    for name, parameter in parameters.items():
        first = names.get(name, name)
        if found.get(first, parameter) is parameter and first != name:
            found[first] = found.pop(name)
    return found


def named_parameters(wired: Any, names: Iterable[str]) -> dict[str, nn.Parameter]:
    """Return the parameters of a model by the names of the plain model.

    Args:
        wired: The model, or a list or tuple with modules in it.
        names: Names in the plain model.
    """
    known = {*names}
    modules = [each for each in tree_leaves(wired) if isinstance(each, nn.Module)]
    pairs = [
        pair
        for each in modules
        for pair in each.named_parameters(remove_duplicate=False)
    ]
    return {_plain_name(name, known): parameter for name, parameter in pairs}


def _plain_name(name: str, known: set[str]) -> str:
    for word in ("", *_WRAPPERS):
        name = name.replace(word, "") if word else name
        if name in known:
            return name
    return name


def local_squares(value: torch.Tensor) -> float:
    """Return the sum of the squares of this rank's part of a tensor."""
    part = value.to_local() if isinstance(value, DTensor) else value
    return float(part.detach().double().square().sum())


def axes_of(value: torch.Tensor) -> frozenset[str]:
    """Return the axes over which a tensor is split."""
    if not isinstance(value, DTensor):
        return frozenset()
    names = value.device_mesh.mesh_dim_names or ()
    placements = zip(names, value.placements, strict=False)
    return frozenset(name for name, placement in placements if splits(placement))


def optimizer_state(
    optimizers: Iterable[Any], names: Mapping[torch.Tensor, str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of the state of optimizers, each with its name."""
    for optimizer in {id(each): each for each in optimizers}.values():
        for parameter, state in getattr(optimizer, "state", {}).items():
            for key, value in state.items():
                if (
                    isinstance(parameter, torch.Tensor)
                    and parameter in names
                    and isinstance(value, torch.Tensor | int | float)
                ):
                    tensor = torch.as_tensor(value)
                    yield StateName.of(names[parameter], key), tensor
