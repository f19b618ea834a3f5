"""Run gloo ranks as processes of one thread; they end with the measurement."""

import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from studies.benchmarks.rounds import Times, slowest_rank
from syncverify.processes.calls import run_in_processes


def times_of_ranks(
    num_ranks: int, program: Callable[..., dict[str, Times]], *arguments: object
) -> dict[str, Times]:
    """Run a program on gloo ranks; return the times of the slowest rank, by label."""
    by_rank: list[dict[str, Times]] = run_on_ranks(num_ranks, program, *arguments)
    return {
        label: slowest_rank([times[label] for times in by_rank]) for label in by_rank[0]
    }


def run_on_ranks(
    num_ranks: int, program: Callable[..., Any], *arguments: object
) -> list[Any]:
    """Run an importable function on gloo ranks; return results by rank.

    Raises:
        InternalError: A rank has no result; all ranks are ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{Path(folder) / 'store'}"
        play = partial(_run_rank, num_ranks, store, program, arguments)
        # All ranks at once, since they wait for each other; closing ends those that are left.
        with closing(run_in_processes(play, range(num_ranks), jobs=num_ranks)) as ended:
            by_rank = dict(ended)
    return [by_rank[rank] for rank in range(num_ranks)]


def _run_rank(
    num_ranks: int,
    store: str,
    program: Callable[..., Any],
    arguments: tuple[object, ...],
    rank: int,
) -> Any:
    torch.set_num_threads(1)
    # The process ends with the program, and its group with the process.
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=num_ranks)
    return program(*arguments)
