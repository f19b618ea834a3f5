"""Ranks as processes, which end with the measurement or with this process."""

import multiprocessing
import os
import signal
import tempfile
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from studies.benchmarks.rounds import Times, slowest_rank
from syncverify.processes.child_process import end_when_closed, interrupts_blocked

# The server imports all modules and starts no thread. A fork of it is a rank at once, and
# inherits the imports only. The first DTensor imports `torch._dynamo`.
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["studies.benchmarks.synchronizer.__main__", "torch._dynamo"]
)


class RankFailedError(Exception):
    """A rank raised, or its process died."""


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
    """Run an importable function on gloo ranks of one thread; return results by rank.

    Raises:
        RankFailedError: A rank has no result; all ranks are ended.
    """
    os.environ["OMP_NUM_THREADS"] = "1"  # read where torch is imported
    processes: list[BaseProcess] = []
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        try:
            ours: list[Connection] = []
            for rank in range(num_ranks):
                receiver, sender = _SERVER.Pipe(duplex=False)
                process: BaseProcess = _SERVER.Process(
                    target=_run_rank,
                    args=(sender, rank, num_ranks, store, program, arguments),
                    daemon=True,
                )
                processes.append(process)
                # An interrupt within a start would lose the id of the rank, or half of
                # its arguments. The first start takes seconds: the server imports torch.
                # Server and ranks inherit the block, so that Ctrl-C reaches this one only.
                with interrupts_blocked():
                    process.start()
                sender.close()  # so that a rank that dies ends its pipe
                ours.append(receiver)
            return _collect(ours)
        finally:
            started = [p for p in processes if p.ident is not None]
            for process in started:
                process.kill()
            for process in started:
                process.join()


def _collect(connections: list[Connection]) -> list[Any]:
    results: dict[int, Any] = {}
    while len(results) < len(connections):
        pending = [c for rank, c in enumerate(connections) if rank not in results]
        for connection in wait(pending):
            assert isinstance(connection, Connection)
            rank = connections.index(connection)
            try:
                results[rank], failure = connection.recv()
            except EOFError:
                failure = "its process died"
            if failure:
                raise RankFailedError(f"rank {rank}: {failure}")
    return [results[rank] for rank in range(len(connections))]


def _run_rank(
    connection: Connection,
    rank: int,
    num_ranks: int,
    store: str,
    program: Callable[..., Any],
    arguments: tuple[object, ...],
) -> None:
    # Ctrl-C reaches the whole process group; only the parent acts on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    try:
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=num_ranks
        )
        connection.send((program(*arguments), ""))
    except Exception:  # noqa: BLE001  # raised again by the parent
        connection.send((None, traceback.format_exc()))
    # Threads of gloo may still release tensors, and the caches of DTensor keep the threads
    # alive. Python before 3.14 aborts if such a thread runs during its shutdown. So the
    # process waits until the parent kills it.
    threading.Event().wait()


def _end_with_parent() -> None:
    """See Note [A child ends with its parent]."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "ranks are started by a parent"
    end_when_closed(parent.sentinel, os.getpid())
    if wait([parent.sentinel], timeout=0):  # closed before the kernel watched it
        os._exit(1)
