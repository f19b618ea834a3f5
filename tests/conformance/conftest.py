"""Ranks over gloo that are threads of this process, and two wrappers of a model."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.multi_threaded_pg import (
    _install_threaded_pg,
    _uninstall_threaded_pg,
)

from tests.conformance.wrappers import Wrapped, wrapped_by

# A rank that waits for a failed one gives up after this time.
RANK_TIMEOUT = timedelta(seconds=20)


def played(num_ranks: int, program: Callable[[int], Any]) -> list[Any]:
    """Return the result of the program on each rank, or raise its error."""
    store, end = dist.HashStore(), Barrier(num_ranks)

    def run_rank(rank: int) -> Any:
        try:
            dist.init_process_group(
                "gloo",
                rank=rank,
                world_size=num_ranks,
                store=store,
                timeout=RANK_TIMEOUT,
            )
            result = program(rank)
            # A rank that leaves closes connections that a slower one may need.
            with suppress(BrokenBarrierError):
                end.wait()
        except BaseException:
            end.abort()
            raise
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
        return result

    with ThreadPoolExecutor(num_ranks) as threads:
        return [*threads.map(run_rank, range(num_ranks))]


@pytest.fixture
def play() -> Iterator[Callable[[int, Callable[[int], Any]], list[Any]]]:
    """A function that plays a program on several ranks."""
    # Gives each thread process groups of its own.
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    _install_threaded_pg()
    yield played
    _uninstall_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(False)


@pytest.fixture(params=["synchronizer", "ddp"])
def wrap(request: pytest.FixtureRequest) -> Callable[..., Wrapped]:
    """A function that wraps a model, by our synchronizer and then by DDP."""
    return partial(wrapped_by, request.param)
