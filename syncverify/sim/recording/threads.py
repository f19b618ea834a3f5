"""The thread that acts for a rank, and threads of the subject's own, which are no ranks.

A simulated rank is a thread, and its rank, streams and world are local to the thread. The
engine changes threads where backwards are nested deeply. One thread at a time may act for a rank:
the thread that has the rank's turn. What a thread of the subject would do meanwhile depends on
the operating system, so no run of the simulation would show it: such a run is refused, with the
line that communicates.

| a thread that | is refused by |
|---|---|
| issues a collective of a simulated group, or uses the store | the scheduler |
| issues one of another group, or a functional one | a dispatch mode of the thread |
| makes a group, or asks a mesh for one | torch's function, replaced here |
| uses the default group, and has no world or one whose groups are gone | torch's function, replaced here |
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.sim.device.device_modules import installed
from syncverify.sim.device.host_copies import reading_as, thread_reads
from syncverify.sim.device.streams import RankStreams, own_streams, use_streams
from syncverify.sim.device.torch_internals import (
    NEW_GROUP,
    RESOLVE_GROUP,
    RESOLVE_GROUP_BY_NAME,
)
from syncverify.sim.network.threaded_world import (
    GET_WORLD,
    has_groups,
    own_world,
    use_world,
)
from syncverify.sim.recording.host_reader import HostReader
from syncverify.sim.recording.operators import effects_of, tensors_at
from syncverify.sim.turns.own_errors import OWN_ERRORS_NOTED
from syncverify.sim.turns.refusals import enter_own_thread, is_own_thread, refuse_thread
from syncverify.sim.turns.scheduler import enter_rank, own_rank
from syncverify.trace.dispatch_modes import HarnessMode, carry_dispatch_modes
from syncverify.trace.stacks import calling_line


def thread_identity() -> Callable[[], AbstractContextManager[None]]:
    """Return a function that makes a context, in which a thread acts for the caller's rank.

    The thread gets the dispatch modes that record, too. On a thread of this rank the context
    changes nothing else.
    """
    own, with_modes = _identity(), carry_dispatch_modes()

    @contextmanager
    def as_rank() -> Iterator[None]:
        before = _identity()
        _become(*own)
        try:
            with with_modes():
                yield
        finally:
            _become(*before)

    return as_rank


def _identity() -> tuple[int | None, RankStreams | None, object | None]:
    """Return rank, streams and world of the calling thread; None for each that it lacks."""
    return own_rank(), own_streams(), own_world()


def _become(
    rank: int | None, streams: RankStreams | None, world: object | None
) -> None:
    enter_rank(rank)
    use_streams(streams)
    use_world(world)


# Attribute of a thread, or of a future, with its reads of memory of the host.
_READS = "_syncverify_reads"


class _RefusingCollectives(HarnessMode):
    """Refuses the collectives of a thread, as long as it acts for no rank."""

    @override
    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Refuse a collective; run any other operator, and note the memory that it reads."""
        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented  # it unwraps itself, and its operators come here next
        if func.namespace in {"c10d", "_c10d_functional"} and own_rank() is None:
            refuse_thread()
        reads, effects = thread_reads(), effects_of(func)
        if reads is not None and effects is not None:
            reads.read(tensors_at(effects.reads, args, kwargs), effects.name)
        return func(*args, **(kwargs or {}))


def refusing_threads_that_communicate() -> AbstractContextManager[None]:
    """Refuse collectives of threads that are no ranks, for the length of a block.

    Threads that ranks start find the process groups of their rank, and may ask for its number.
    Otherwise torch says on them that there is no default process group, which is wrong.
    """
    return installed(_replacements())


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    yield threading.Thread, "start", _starting(threading.Thread.start)
    for owner, name in ((threading.Thread, "join"), (Future, "result")):
        yield owner, name, _joining(getattr(owner, name))
    yield ThreadPoolExecutor, "submit", _submitting(ThreadPoolExecutor.submit)
    for place in (RESOLVE_GROUP, RESOLVE_GROUP_BY_NAME, NEW_GROUP, GET_WORLD):
        yield *place, _refusing(getattr(*place), may_have_groups=place is GET_WORLD)


def _refusing(original: Callable[..., Any], *, may_have_groups: bool) -> Any:
    """Refuse threads that are no ranks, or those of them that have no groups either."""

    def refusing(*args: Any, **kwargs: Any) -> Any:
        if own_rank() is None and not (may_have_groups and has_groups()):
            refuse_thread()
        return original(*args, **kwargs)

    return refusing


def _starting(original: Callable[[threading.Thread], None]) -> Any:
    def start(thread: Any) -> None:
        if own_rank() is not None or is_own_thread():
            reads, world, run = _new_reads(), own_world(), thread.run
            started_at = calling_line()
            setattr(thread, _READS, reads)

            def run_in_world() -> None:
                enter_own_thread(started_at)
                use_world(world)
                collectives = _RefusingCollectives()  # type: ignore[no-untyped-call]  # torch
                with collectives, reading_as(reads), OWN_ERRORS_NOTED:
                    run()

            thread.run = run_in_world
        original(thread)

    return start


def _joining(original: Callable[..., Any]) -> Any:
    """Count the reads of a thread, or of a future, once its rank has waited for it."""

    def join(awaited: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(awaited, *args, **kwargs)
        finally:
            reads = getattr(awaited, _READS, None)
            if reads is not None and own_rank() is not None:
                reads.arrive()

    return join


def _submitting(original: Callable[..., Any]) -> Any:
    def submit(pool: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
        reads = _new_reads()
        if reads is None:
            return original(pool, function, *args, **kwargs)

        def run(*args: Any, **kwargs: Any) -> Any:
            with reading_as(reads):
                return function(*args, **kwargs)

        future = original(pool, run, *args, **kwargs)
        setattr(future, _READS, reads)
        return future

    return submit


def _new_reads() -> HostReader | None:
    """Return what notes the reads of a thread that the calling thread starts."""
    streams = own_streams()
    reads: HostReader | None = (
        thread_reads() if streams is None else streams.recorder.reader_of_thread()
    )
    return reads
