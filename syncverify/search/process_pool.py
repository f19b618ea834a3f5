"""Calls in several processes that end with the command that makes them.

`ProcessPoolExecutor` runs the calls. Added here: an error or an interrupt ends running
calls at once, and a process whose parent was killed ends too.
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

from syncverify.backends.child_process import end_when_closed, interrupts_blocked

Item = TypeVar("Item")
Result = TypeVar("Result")


def run_in_processes(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    jobs: int,
    context: BaseContext,
) -> Generator[tuple[Item, Result]]:
    """Yield each item with the function's result, in the order in which calls end.

    Function and items can be pickled. `context` is the start method of the processes.
    """
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=end_with_parent)
    try:
        with interrupts_blocked():  # until `end_with_parent` has run in the process
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
    """Let this process end when its parent has ended, and not by Ctrl-C before that."""
    signal.signal(signal.SIGINT, _leave_to_parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    parent = multiprocessing.parent_process()
    if parent is not None and os.getpgrp() != os.getpid():
        # See Note [A child ends with its parent]. The leader of a process group has to end
        # its group as well, which the kernel does not: it relies on the thread alone.
        end_when_closed(parent.sentinel, os.getpid())
    threading.Thread(target=_end_after_parent, daemon=True).start()


def _leave_to_parent(_number: int, _frame: object) -> None:
    """Do nothing. Processes that this one starts would inherit SIG_IGN, but no handler."""


def _end_after_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        if os.getpgrp() == os.getpid():  # the group holds all processes started here
            os.killpg(0, signal.SIGKILL)
        os._exit(1)
