"""Trainings that communicate in a lower dtype than the one in which they are compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from syncverify.errors import UsageError
from syncverify.judge.traced import launches_of
from syncverify.trace.run import Run
from syncverify.whole_step.causes import RanksDiffer, Unexplained
from syncverify.whole_step.findings import WrongQuantity
from syncverify.whole_step.layout import Layout


def check_precision(
    run: Run, dtype: torch.dtype, layout: Layout, mistakes: Iterable[WrongQuantity]
) -> None:
    """Refuse what rounding of a lower dtype explains as well as a mistake does.

    Args:
        run: The run on the mesh.
        dtype: Dtype in which model and batch are.
        layout: The layout.
        mistakes: What the values show.

    Raises:
        UsageError: No known mistake explains the values, and collectives have a lower dtype.
    """
    if not all(isinstance(each.cause, Unexplained | RanksDiffer) for each in mistakes):
        return
    lower = sorted({*_lower_dtypes(run, torch.finfo(dtype).bits)})
    if lower:
        raise UsageError(
            f"the training on {layout} communicates in {', '.join(lower)}, and its rounding "
            f"may explain what differs; compare in {dtype}, without mixed precision"
        )


def _lower_dtypes(run: Run, bits: int) -> Iterator[str]:
    """Yield the dtypes of collectives with several elements that have fewer bits."""
    for rank in run.ranks:
        for launch in launches_of(rank.trace):
            dtype = getattr(torch, launch.dtype, None)
            if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
                continue
            if launch.numel > 1 and torch.finfo(dtype).bits < bits:
                yield launch.dtype
