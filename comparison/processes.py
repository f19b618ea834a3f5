"""Play cases side by side, each share of them in a process with rigs of its own."""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import torch

from comparison.cases import Case
from comparison.outcomes import Outcome, compared
from comparison.rigs import Rigs


def compared_in(jobs: int, cases: Sequence[Case]) -> Iterator[Outcome]:
    """Yield what all methods say of each case, as it becomes known.

    Args:
        jobs: Number of processes.
        cases: What to play.
    """
    # Spawned: a fork would copy threads that a search has started.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_prepare) as pool:
        for done in as_completed([pool.submit(_compared, case) for case in cases]):
            yield done.result()


def _prepare() -> None:
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process, and so what its rigs started, if the command is killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _compared(case: Case) -> Outcome:
    return compared(case, _rigs())


@functools.cache
def _rigs() -> Rigs:
    """Open the rigs of this process; what they start ends with it."""
    return Rigs()
