"""A pool of processes that end when the command that started them ends.

`ProcessPoolExecutor` runs the calls. This module adds two things: an error or an interrupt
ends running calls at once, and a process ends when its parent is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.context import BaseContext
from typing import TypeVar

from syncverify.processes.child_process import end_when_closed, interrupts_blocked

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_in_processes(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    jobs: int,
    context: BaseContext,
) -> Generator[tuple[Item, Result]]:
    """Yield each item with the result of `function`, in the order in which calls end.

    `function`, the items and the results can be pickled. `context` is the start method of
    the processes.
    """
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=end_with_parent)
    try:
        # Processes start with interrupts blocked; `end_with_parent` unblocks them there.
        with interrupts_blocked():
            running = {pool.submit(function, item): item for item in items}
        for done in as_completed(running):
            yield running[done], done.result()
    except BaseException:
        # shutdown() waits for running calls; terminate_workers() is new in Python 3.14.
        for process in multiprocessing.active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def end_with_parent() -> None:
    """Let this process end with its parent, and ignore Ctrl-C until then."""
    signal.signal(signal.SIGINT, _leave_to_parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    if parent is not None and os.getpgrp() != os.getpid():
        # See Note [A child ends with its parent]. The kernel ends one process, not a group.
        # A leader of a process group has to end its group too, so it relies on the thread
        # alone.
        end_when_closed(parent.sentinel, os.getpid())
    threading.Thread(target=_end_after_parent, daemon=True).start()


def _leave_to_parent(_number: int, _frame: object) -> None:
    """Ignore the signal.

    A handler does this because child processes would inherit SIG_IGN, and do not inherit a
    handler.
    """


def _end_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        if os.getpgrp() == os.getpid():
            # the group holds all processes that this process started
            os.killpg(0, signal.SIGKILL)
        os._exit(1)
