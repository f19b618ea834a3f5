"""Ranks are processes that live for one measurement and never longer than this one."""

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

# Forked from one process that has imported everything and started no thread: ranks are
# there at once, and inherit nothing but the imports.
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["benchmarks.synchronizer.__main__", "torch._dynamo"]  # DTensor's, at first use
)


class RankFailedError(Exception):
    """A rank raised, or its process died."""


def run_on_ranks(
    num_ranks: int, program: Callable[..., Any], *arguments: object
) -> list[Any]:
    """Run a program on gloo ranks with one thread each.

    Args:
        num_ranks: The world size.
        program: Importable; called with `arguments` on every rank.
        arguments: Picklable.

    Returns:
        What it returned, by rank.

    Raises:
        RankFailedError: Some rank has no result; all are ended.
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
    # Ctrl-C reaches the whole process group; the parent is the one to act on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=num_ranks
        )
        connection.send((program(*arguments), ""))
    except Exception:  # noqa: BLE001  # raised again by the parent
        connection.send((None, traceback.format_exc()))
    # Gloo's threads may still be giving back tensors, and DTensor's caches keep them
    # alive; a Python before 3.14 aborts when such a thread meets its shutdown. So the
    # process waits to be killed.
    threading.Event().wait()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "ranks are started by a parent"
    wait([parent.sentinel])
    os._exit(1)
