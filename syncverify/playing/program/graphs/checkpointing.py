"""Activation checkpoints, which run forward again in backward, reentrant and not."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

from syncverify.playing.program.graphs.losses import total
from syncverify.playing.program.graphs.products import dot, halves


def checkpointed(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use the parameter in two segments, which saved-tensor hooks compute again."""
    return _in_segments(local, constant, use_reentrant=False)


def checkpointed_reentrant(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use the parameter in two segments, each with a backward inside of the outer one."""
    return _in_segments(local, constant, use_reentrant=True)


def checkpointed_and_not(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use the parameter in a reentrant segment and outside of the segment."""
    inside, outside = halves(constant)
    return _segment(local, inside, use_reentrant=True) + dot(local, outside)


def checkpointed_nested(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Use the parameter in two reentrant segments, one inside of the other."""
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
    return total(
        _segment(local, half, use_reentrant=use_reentrant) for half in halves(constant)
    )


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
    # No segment draws random numbers, so their state need not be saved.
    result: torch.Tensor = checkpoint(
        run, entry, use_reentrant=use_reentrant, preserve_rng_state=False
    )
    return result


def _input(local: torch.Tensor) -> torch.Tensor:
    """Make an input that needs a gradient, without which a reentrant segment has none."""
    return torch.ones((), device=local.device, requires_grad=True)
