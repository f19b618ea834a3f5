"""One call on a worker of a cluster, in another process.

A subject may exit, crash or hang the process that plays it. The worker stays: it forks a process
for each call, hears it, and returns how it ended. Function, arguments, results and told values pass
the worker as bytes: they belong to modules that import torch, which takes seconds.
"""

import pickle
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from syncverify.errors import UsageError
from syncverify.import_path import take_over
from syncverify.processes.calls import heard_by, run_in_processes
from syncverify.processes.owner_link import Lost, tell_owner
from syncverify.search.cluster.connection import Versions, difference, versions_here

_TELL_SECONDS: Final = 1.0
_ended: set[str] = set()


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """A call of a function on a worker."""

    work: bytes  # function and argument, pickled
    # Topic on which values are told, and name under which calls end early.
    campaign: str
    # Versions of the process that wants the call, and the folders from which it imports.
    versions: Versions
    import_path: tuple[str, ...]
    user_folders: frozenset[str]  # those for the user's modules alone


@dataclass(frozen=True, slots=True)
class CallLost:
    """A call that lost its process, which played the scenario of a token."""

    token: str
    end: Lost


# A result, pickled, or no result.
CallEnd = bytes | CallLost


def end_calls(campaign: str) -> None:
    """Let the calls of a campaign on this worker end early."""
    _ended.add(campaign)


def call_apart(call: RemoteCall) -> CallEnd:
    """Return the result of a call on this worker, in a process of its own.

    Raises:
        UsageError: This worker has other versions. Errors of the call are raised as they are.
    """
    from distributed import get_worker

    worker = get_worker()
    other = difference(call.versions, versions_here())
    if other:
        raise UsageError(f"the worker {worker.address} has {other}")
    _import_from(call)
    key = worker.get_current_task()
    words = _Words(lambda word: worker.log_event(call.campaign, word))

    def is_to_end() -> bool:
        words.tell_if_due()
        state = worker.state.tasks.get(key)  # a scheduler whose client is gone cancels
        return call.campaign in _ended or state is None or state.state == "cancelled"

    results = run_in_processes(
        _returned,
        [call],
        jobs=1,
        hear=words.hear,
        stops=is_to_end,
        lost=lambda _, token, end: CallLost(token, end),
    )
    try:
        with closing(results):
            return next(results)[1]
    finally:
        words.tell()


def _returned(call: RemoteCall) -> CallEnd:
    function, item = pickle.loads(call.work)
    with heard_by(lambda word: tell_owner(lambda: pickle.dumps(word))):
        return pickle.dumps(function(item))


def _import_from(call: RemoteCall) -> None:
    """Import from folders of the caller as well, where this machine has them."""
    there = [each for each in call.import_path if Path(each).is_dir()]
    path = dict.fromkeys(each for each in there if each in call.user_folders)
    path |= dict.fromkeys([*sys.path, *there])
    take_over(path, call.user_folders)


class _Words:
    """Values that a call tells, sent together: a thousand workers share one scheduler."""

    def __init__(self, send: Callable[[bytes], object]) -> None:
        self._send = send
        self._held: list[bytes] = []
        self._next = 0.0

    def hear(self, word: object) -> None:
        """Take one value; other words are for the owner of the process, which is this one."""
        if isinstance(word, bytes):
            self._held.append(word)
        self.tell_if_due()

    def tell_if_due(self) -> None:
        """Send the values of the last second."""
        if time.monotonic() >= self._next:
            self.tell()

    def tell(self) -> None:
        """Send the values that are held."""
        if self._held:
            self._send(pickle.dumps(self._held))
            self._held = []
            self._next = time.monotonic() + _TELL_SECONDS
