"""Ranks that are threads of this process, each with process groups of its own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.multi_threaded_pg import (
    ProcessLocalGroup,
    _install_threaded_pg,
    _uninstall_threaded_pg,
)

# A rank that waits for a failed one gives up after this time.
RANK_TIMEOUT = timedelta(seconds=20)
JOIN_SECONDS = 30.0


@contextmanager
def groups_by_thread() -> Iterator[None]:
    """Let each thread have a default process group."""
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    _install_threaded_pg()
    yield
    ProcessLocalGroup.reset()
    _uninstall_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(False)


def on_ranks(
    num_ranks: int, program: Callable[[int], Any], backend: str = "threaded"
) -> list[Any]:
    """Return the result of the program on each rank, or raise the first error."""
    results: list[Any] = [None] * num_ranks
    errors: list[BaseException] = []
    store, end = dist.HashStore(), threading.Barrier(num_ranks)

    def run_rank(rank: int) -> None:
        try:
            dist.init_process_group(
                backend,
                rank=rank,
                world_size=num_ranks,
                store=store,
                timeout=RANK_TIMEOUT,
            )
            results[rank] = program(rank)
            # A rank that leaves closes connections that a slower one may need.
            with suppress(threading.BrokenBarrierError):
                end.wait()
        except BaseException as error:  # noqa: BLE001  # raised again below
            errors.append(error)
            end.abort()
            if backend == "threaded":
                ProcessLocalGroup.exception_handle(error)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    threads = [
        threading.Thread(target=run_rank, args=(rank,), daemon=True)
        for rank in range(num_ranks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_SECONDS)
    stuck = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
    for error in errors:
        if not isinstance(error, SystemExit):  # of a rank whose peer failed
            raise error
    assert not stuck, f"ranks {stuck} did not finish"
    return results
