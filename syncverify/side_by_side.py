"""Calls in several processes, none of which outlives the command that makes them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.context import BaseContext
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    jobs: int,
    context: BaseContext,
) -> Generator[tuple[Item, Result]]:
    """Call a function with each item.

    Args:
        function: What to call; it and the items can be pickled.
        items: With what.
        jobs: Number of processes.
        context: How they are started.

    Yields:
        An item and what came of it, as calls end.
    """
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=end_with_parent)
    try:
        running = {pool.submit(function, item): item for item in items}
        for done in as_completed(running):
            yield running[done], done.result()
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()  # or its call would be waited for
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def end_with_parent() -> None:
    """Let this process end when the one that made it has, and not before, by Ctrl-C."""
    signal.signal(signal.SIGINT, _leave_it_to_the_parent)
    threading.Thread(target=_end_after_parent, daemon=True).start()


def _leave_it_to_the_parent(_number: int, _frame: object) -> None:
    """Do nothing, and not by SIG_IGN, which processes made by this one would inherit."""


def _end_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        if os.getpgrp() == os.getpid():  # with whatever it has started
            os.killpg(0, signal.SIGKILL)
        os._exit(1)
