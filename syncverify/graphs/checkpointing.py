"""Activation checkpoints: forward again in backward, reentrant and not."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

from syncverify.graphs.products import dot, halves

_DEEP = 70  # the engine nests 60 backwards on one thread


def checkpointed(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use it in two segments that are computed again by saved-tensor hooks."""
    return _in_segments(local, constant, use_reentrant=False)


def checkpointed_reentrant(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use it in two segments, each with a backward of its own inside of the outer one."""
    return _in_segments(local, constant, use_reentrant=True)


def checkpointed_and_not(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use it in a reentrant segment, and outside of it as well."""
    inside, outside = halves(constant)
    return _segment(local, inside, use_reentrant=True) + dot(local, outside)


def checkpointed_nested(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use it in a reentrant segment inside of another one, and in that one."""
    inner, outer = halves(constant)

    def run(one: torch.Tensor) -> torch.Tensor:
        within = _run_segment(
            lambda same: same * dot(local, inner), one, use_reentrant=True
        )
        return within + one * dot(local, outer)

    return _run_segment(run, _input(local), use_reentrant=True)


def _in_segments(
    local: torch.Tensor, constant: torch.Tensor, *, use_reentrant: bool
) -> torch.Tensor:
    terms = [
        _segment(local, half, use_reentrant=use_reentrant) for half in halves(constant)
    ]
    return functools.reduce(torch.add, terms)


def _segment(
    local: torch.Tensor, constant: torch.Tensor, *, use_reentrant: bool
) -> torch.Tensor:
    def run(one: torch.Tensor) -> torch.Tensor:
        return one * dot(local, constant)

    return _run_segment(run, _input(local), use_reentrant=use_reentrant)


def _run_segment(
    run: Callable[[torch.Tensor], torch.Tensor],
    entry: torch.Tensor,
    *,
    use_reentrant: bool,
) -> torch.Tensor:
    # Nothing here draws random numbers.
    result: torch.Tensor = checkpoint(
        run, entry, use_reentrant=use_reentrant, preserve_rng_state=False
    )
    return result


def _input(local: torch.Tensor) -> torch.Tensor:
    """Make what flows into a segment; without one a reentrant segment has no gradient."""
    return torch.ones((), device=local.device, requires_grad=True)
