"""A crew on a cluster: it hands calls out, hears them, and repeats those that are lost.

A call is lost in two ways. Its worker dies: another worker makes the call, and the scheduler
sees to that. Or the process dies in which the worker makes the call: the call is made once
more, elsewhere, and the second loss is told to the owner of this command, as that of any
process that plays (Note [Who owns the end of a command] in `command/owner.py`).
"""

from __future__ import annotations

import asyncio
import pickle
import queue
import time
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from syncverify.errors import InternalError, SyncverifyError, UsageError
from syncverify.import_path import import_path, user_folders
from syncverify.processes.owner_link import Waits, leave_lost, tell_owner
from syncverify.search.cluster.connection import connected, versions_here
from syncverify.search.cluster.worker import CallLost, RemoteCall, call_apart, end_calls

if TYPE_CHECKING:
    from distributed import Client, Future

Item = TypeVar("Item")
Result = TypeVar("Result")
_TICK_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 10.0
# A worker gets its next call while it plays one.
_CALLS_A_WORKER: Final = 2
_MOST_LOSSES: Final = 2  # of the process of a call
# Times that the scheduler gives a call up; it does so after four workers.
_MOST_DEATHS: Final = 3


def run_on_cluster(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    place: str,
    hear: Callable[[Any], object] = lambda _: None,
    stops: Callable[[], bool] = lambda: False,
) -> Generator[tuple[Item, Result]]:
    """Yield each item with the result of `function`, in the order in which calls end.

    The arguments are those of `run_in_processes`, and `place` is the cluster, as in `connected`.

    Raises:
        UsageError: The cluster cannot be used, or is lost.
    """
    with connected(place) as client:
        calls = _Calls[Item](client, place, function, iter(items))
        try:
            yield from calls.results(hear, stops)
        finally:
            calls.close()


@dataclass(slots=True)
class _HandedOutCall(Generic[Item]):
    """A call that is handed out."""

    item: Item
    # Number of times that its process was lost, and that the scheduler gave it up.
    num_losses: int = 0
    num_deaths: int = 0


class _Calls(Generic[Item]):
    """The calls that a cluster makes."""

    def __init__(
        self,
        client: Client,
        place: str,
        function: Callable[[Item], Any],
        items: Iterator[Item],
    ) -> None:
        self._client, self._place = client, place
        self._function, self._left = function, items
        self._name = f"syncverify-{uuid.uuid4().hex}"
        self._running: dict[Future, _HandedOutCall[Item]] = {}
        self._is_told_to_stop = False
        self._num_slots, self._next_look = 0, 0.0
        # Values that calls tell, as bytes, and calls that have ended.
        self._news: queue.Queue[bytes | Future] = queue.Queue()
        client.subscribe_topic(self._name, lambda event: self._news.put(event[1]))

    def results(
        self, hear: Callable[[Any], object], stops: Callable[[], bool]
    ) -> Iterator[tuple[Item, Any]]:
        """Yield each item with its result."""
        self._begin_calls()
        while self._running:
            for each in self._next_news():
                if isinstance(each, bytes):
                    for word in pickle.loads(each):
                        hear(pickle.loads(word))
                elif each in self._running:
                    yield from self._taken(each)
            if stops() and not self._is_told_to_stop:
                self._is_told_to_stop = True
                self._asked(self._client.run, end_calls, self._name)
            self._begin_calls()

    def close(self) -> None:
        """Give up all calls that run."""
        if self._running and self._client.status == "running":
            self._client.cancel([*self._running])

    def _next_news(self) -> list[bytes | Future]:
        """Return the news that are there, or that come within a second."""
        tell_owner(Waits)
        if self._client.status != "running":
            raise self._lost_cluster()
        try:
            first = self._news.get(timeout=_TICK_SECONDS)
        except queue.Empty:
            return []
        return [first, *(self._news.get() for _ in range(self._news.qsize()))]

    def _begin_calls(self) -> None:
        """Hand out as many calls as the workers that are there can make."""
        self._look_for_workers()
        num_free = _CALLS_A_WORKER * self._num_slots - len(self._running)
        if num_free > 0 and not self._is_told_to_stop:
            for item in islice(self._left, num_free):
                self._submit(_HandedOutCall(item))

    def _look_for_workers(self) -> None:
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            threads = self._asked(self._client.nthreads)
            self._num_slots = max(1, sum(threads.values()))

    def _asked(self, ask: Callable[..., Any], *arguments: object) -> Any:
        """Return the answer of the scheduler, or raise an error if it is gone."""
        try:
            return ask(*arguments)
        except (OSError, CancelledError, asyncio.CancelledError) as error:
            raise self._lost_cluster() from error

    def _submit(self, running: _HandedOutCall[Item]) -> None:
        work = pickle.dumps((self._function, running.item))
        call = RemoteCall(
            work, self._name, versions_here(), tuple(import_path()), user_folders()
        )
        future = self._client.submit(call_apart, call, pure=False)
        self._running[future] = running
        future.add_done_callback(self._news.put)

    def _taken(self, future: Future) -> Iterator[tuple[Item, Any]]:
        """Yield the result of a call that has ended; make a lost call once more."""
        from distributed import KilledWorker

        running = self._running.pop(future)
        if future.status == "cancelled":
            raise self._lost_cluster()
        error = self._asked(future.exception)
        if isinstance(error, SyncverifyError):
            raise error
        if error is not None and not isinstance(error, KilledWorker):
            raise UsageError(f"a worker cannot make a call: {error}") from error
        result: Any = None if error else self._asked(future.result)
        if error is not None:
            running.num_deaths += 1
            if running.num_deaths == _MOST_DEATHS:
                raise InternalError(
                    f"several workers died in one part of the search, the last one at "
                    f"{getattr(error, 'last_worker', '')}; its log may say why"
                )
        elif isinstance(result, CallLost):
            running.num_losses += 1
            if running.num_losses == _MOST_LOSSES:
                leave_lost(result.token, result.end)
                raise InternalError(
                    f"a process of a worker {result.end.how}; it played {result.token}"
                )
        else:
            yield running.item, pickle.loads(result)
            return
        self._submit(running)

    def _lost_cluster(self) -> UsageError:
        return UsageError(
            f"lost the scheduler at {self._place!r}; once one is there, the same command goes on"
        )
