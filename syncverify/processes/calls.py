"""Calls of a function in this process or in several, which end with the command.

An error or an interrupt ends all of them at once, and so does the loss of a process unless the
caller has a result for it.
"""

import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar

import cloudpickle

from syncverify.errors import InternalError, SyncverifyError
from syncverify.processes.forked_process import start
from syncverify.processes.owner_link import Lost, leave_lost, link_to_owner, tell_owner
from syncverify.processes.supervised import HungUp, Supervised, attend
from syncverify.processes.wire import Wire

Item = TypeVar("Item")
Result = TypeVar("Result")
_is_to_stop = threading.Event()


class _Call(NamedTuple):
    """A call, from the parent to a process."""

    function: bytes  # pickled, by value where it is of `__main__`
    item: object


class _Stop:
    """From the parent: the call is to end early."""


class _Returned(NamedTuple):
    """The result of a call."""

    result: object


class _Raised(NamedTuple):
    """An error that ended a call."""

    kind: type[SyncverifyError]
    text: str


class Crew(Protocol):
    """Makes calls of a function: here, in processes, or on other machines."""

    def __call__(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        *,
        hear: Callable[[Any], object] = ...,
        stops: Callable[[], bool] = ...,
    ) -> Generator[tuple[Item, Result]]:
        """Yield each item with its result, as `run_in_processes` does."""


# The process that makes a call, then functions that do so here: one hears words, and tells
# whether to stop.
_callers: list[tuple[Callable[[Callable[[], object]], object], Callable[[], bool]]]
_callers = [(tell_owner, _is_to_stop.is_set)]


def is_to_stop() -> bool:
    """Tell, in a call, whether it is to end early."""
    return _callers[-1][1]()


def tell_caller(word: Callable[[], object]) -> None:
    """Tell a value, in a call, to the process or function that made the call."""
    _callers[-1][0](word)


@contextmanager
def heard_by(
    hear: Callable[[Any], object], stops: Callable[[], bool] = _is_to_stop.is_set
) -> Iterator[None]:
    """Let `hear` receive the values that a call in this block tells."""
    _callers.append((lambda word: hear(word()), stops))
    try:
        yield
    finally:
        _callers.pop()


def run_here(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    hear: Callable[[Any], object] = lambda _: None,
    stops: Callable[[], bool] = lambda: False,
) -> Generator[tuple[Item, Result]]:
    """Yield each item with the result of `function`, which runs in this process.

    The arguments are those of `run_in_processes`.
    """
    for item in items:
        if stops():
            return
        with heard_by(hear, stops):
            result = function(item)
        yield item, result


def run_in_processes(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    jobs: int,
    hear: Callable[[Any], object] = lambda _: None,
    stops: Callable[[], bool] = lambda: False,
    lost: Callable[[Item, str, Lost], Result] | None = None,
) -> Generator[tuple[Item, Result]]:
    """Yield each item with the result of `function`, in the order in which calls end.

    Args:
        function: It, the items and the results can be pickled.
        hear: Receives the values that calls tell by `tell_caller`.
        stops: Tells whether the calls are to end early, and no other begins; see `is_to_stop`.
        lost: Returns the result of an item after the loss of its process, from the item, the
            token of the scenario that was played and the end. None: the loss ends all calls.

    Raises:
        SyncverifyError: A call raised it.
        InternalError: A call raised another error, or a process was lost and has no owner.
    """
    with closing(_Crew[Item](cloudpickle.dumps(function), items)) as crew:
        crew.start(jobs)
        while crew.running:
            hung_up = set[Supervised]()
            for process, word in attend([*crew.running]):
                match word:
                    case _Returned():
                        yield crew.done(process), word.result  # type: ignore[misc]
                    case _Raised():
                        raise word.kind(word.text)
                    case HungUp():
                        hung_up.add(process)
                    case _:
                        hear(word)
            for process in [*crew.running]:
                if process in hung_up or process.is_stuck():
                    end = process.ended() if process in hung_up else process.hung()
                    if lost is None:
                        crew.give_up(process, end)
                    item = crew.replaced(process)
                    yield item, lost(item, process.token, end)
            if stops():
                crew.stop()


class _Crew(Generic[Item]):
    """The processes that make the calls, each with the item of its call in `running`."""

    def __init__(self, function: bytes, items: Iterable[Item]) -> None:
        self._function = function
        self._left = iter(items)
        self._started: list[Supervised] = []
        self._is_told_to_stop = False
        self.running: dict[Supervised, Item] = {}

    def start(self, jobs: int) -> None:
        """Start all processes before the first is awaited: imports take seconds."""
        for item in islice(self._left, jobs):
            self._started.append(start(__name__))
            self._call(self._started[-1], item)

    def done(self, process: Supervised) -> Item:
        """Give a process its next call; return the item of the one that has ended."""
        item = self.running.pop(process)
        for following in islice(self._left, 1):
            self._call(process, following)
        return item

    def replaced(self, process: Supervised) -> Item:
        """Start a process in the place of a lost process; return the item of the lost process."""
        item = self.running.pop(process)
        self._started.remove(process)
        process.end()
        self.start(1)
        return item

    def _call(self, process: Supervised, item: Item) -> None:
        self.running[process] = item
        process.send(_Call(self._function, item))

    def stop(self) -> None:
        """Tell all calls once that they are to end early."""
        if not self._is_told_to_stop:
            self._is_told_to_stop, self._left = True, iter(())
            for process in self.running:
                process.send(_Stop())

    def give_up(self, process: Supervised, end: Lost) -> NoReturn:
        """Leave the verdict on a lost process to the owner, or else raise an error.

        Raises:
            InternalError: This process has no owner.
        """
        leave_lost(process.token, end)
        place = f"; it played {process.token}" if process.token else ""
        number = self._started.index(process)
        raise InternalError(f"process {number} {end.how}{place}")

    def close(self) -> None:
        for process in self._started:
            process.end()


def main(wire: Wire) -> None:
    """Answer the calls of the parent, until it is gone."""
    # A handler, which processes that the call starts do not inherit: the parent alone acts.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    link_to_owner(wire.send)
    calls = queue.Queue[_Call]()
    threading.Thread(target=_obey, args=(wire, calls), daemon=True).start()
    while True:
        wire.send(_outcome(calls.get()))


def _obey(wire: Wire, calls: queue.Queue[_Call]) -> None:
    """Hand calls on, and end this process when the parent ends."""
    try:
        while True:
            message = wire.receive()
            if isinstance(message, _Stop):
                _is_to_stop.set()
            else:
                calls.put(message)
    finally:
        os._exit(0)  # at once: threads of ranks may still run


def _outcome(call: _Call) -> _Returned | _Raised:
    try:
        return _Returned(cloudpickle.loads(call.function)(call.item))
    except SyncverifyError as error:
        return _Raised(type(error), str(error))
    except Exception:  # noqa: BLE001  # raised again in the parent
        return _Raised(InternalError, traceback.format_exc())
