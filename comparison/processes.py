"""Play cases side by side, each share of them in a process with rigs of its own."""

from __future__ import annotations

import functools
import multiprocessing
from collections.abc import Iterator, Sequence

import torch

from comparison.cases import Case
from comparison.outcomes import Outcome, compared
from comparison.rigs import Rigs
from syncverify.side_by_side import side_by_side


def compared_in(jobs: int, cases: Sequence[Case]) -> Iterator[Outcome]:
    """Yield what all methods say of each case, as it becomes known.

    Args:
        jobs: Number of processes.
        cases: What to play.
    """
    # Spawned: a fork would copy threads that a search has started.
    spawn = multiprocessing.get_context("spawn")
    for _, outcome in side_by_side(_compared, cases, jobs=jobs, context=spawn):
        yield outcome


def _compared(case: Case) -> Outcome:
    torch.set_num_threads(1)
    return compared(case, _rigs())


@functools.cache
def _rigs() -> Rigs:
    """Open the rigs of this process; what they start ends with it."""
    return Rigs()
