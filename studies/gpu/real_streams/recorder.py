"""The recorder of a rank on real streams: it queues collectives, delays and freed memory."""

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from typing_extensions import override

from studies.gpu.real_streams.lanes import Lanes
from syncverify.sim.recording.operators import (
    AccessRecording,
    Effects,
    Note,
    effects_of,
)
from syncverify.sim.recording.threads import thread_identity
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import DEFAULT_STREAM, CollectiveKey, CollectiveLaunch

_NUM_BLOCKS = 8
_NAN_BYTE = (
    255  # a number with all bits set is NaN in bfloat16, float16, float32 and float64
)


class StreamRecorder(Recorder):
    """Plays the collectives of one rank on real streams; see Note [Races that show].

    Args:
        lanes: Streams of the rank.
        taken: Events after which the inputs of a collective are copied; of all ranks.

    Attributes:
        operators: Name and stream of each operator of the subject and of autograd, in order,
            without those of `bind()`.
    """

    def __init__(self, lanes: Lanes, taken: dict[CollectiveKey, list[Any]]) -> None:
        super().__init__()
        self.operators: list[tuple[str, str]] = []
        self._lanes = lanes
        self._taken = taken
        self._delivered: dict[CollectiveKey, Any] = {}
        # As in NCCL, a collective keeps its tensors until a stream waits for the collective.
        self._held: dict[CollectiveKey, list[torch.Tensor]] = {}
        self._living: set[int] = set()
        self._freed: list[tuple[int, Any]] = []
        self._mode = _DelayedOperators(self._note, self._before_operator)

    @override
    def recording_accesses(self) -> AbstractContextManager[None]:
        return self._switched(on=True)

    @override
    def optimizing(self) -> AbstractContextManager[None]:
        return self._switched(on=True)

    @override
    def not_recording_accesses(self) -> AbstractContextManager[None]:
        return self._switched(on=False)

    @override
    def computing_loss(
        self, parameters: Iterable[torch.Tensor]
    ) -> AbstractContextManager[None]:
        return self._switched(on=False)

    @contextmanager
    def _switched(self, *, on: bool) -> Iterator[None]:
        before = getattr(self, "_is_on", False)
        self._is_on = on
        self._mode.switch(on=on)
        try:
            yield
        finally:
            self._is_on = before
            self._mode.switch(on=before)

    @override
    def as_rank(self) -> Callable[[], AbstractContextManager[None]]:
        become = thread_identity()

        @contextmanager
        def as_rank() -> Iterator[None]:
            with become(), self._lanes.as_current(), on_own_thread():
                yield

        return as_rank

    @override
    def communication_stream(
        self,
        communicator: str,
        ranks: tuple[int, ...],
        *,
        is_async: bool,
        library: str = "nccl",
    ) -> str:
        return f"communication of {communicator}" if is_async else DEFAULT_STREAM

    @override
    def launch(
        self, operation: str, tensors: list[torch.Tensor], **told: Any
    ) -> CollectiveLaunch:
        launched = super().launch(operation, tensors, **told)
        self._held[launched.key] = [*tensors, *told.get("written", ())]
        return launched

    @override
    def start(self, launched: CollectiveLaunch, run: Callable[[], None]) -> None:
        stream = self._stream_of(launched)
        stream.wait_stream(self._lanes.current())
        with self._lanes.module.stream(stream):
            self._lanes.delay()
            # The copies come before the arrival, and this event after both: no rank runs
            # in between.
            run()
            self._taken.setdefault(launched.key, []).append(stream.record_event())

    @override
    @contextmanager
    def delivering(self, launched: CollectiveLaunch) -> Iterator[None]:
        stream = self._stream_of(launched)
        for event in self._taken.get(launched.key, ()):
            stream.wait_event(event)
        with self._lanes.module.stream(stream), self.not_recording_accesses():
            self._lanes.delay()
            yield
        self._delivered[launched.key] = stream.record_event()

    @override
    def wait(self, launched: CollectiveLaunch) -> None:
        super().wait(launched)
        if (event := self._delivered.get(launched.key)) is not None:
            self._lanes.current().wait_event(event)
        self._held.pop(launched.key, None)

    def _stream_of(self, launched: CollectiveLaunch) -> Any:
        if launched.communication_stream == DEFAULT_STREAM:
            return self._lanes.current()
        return self._lanes.communication(launched.communication_stream)

    def _before_operator(self) -> None:
        freed, self._freed = self._freed, []
        for num_bytes, stream in freed:
            with self._lanes.module.stream(stream):
                _fill_free_blocks(num_bytes)
        self._lanes.delay()

    def _note(
        self, _: int, effects: Effects, args: Any, kwargs: Any, result: Any
    ) -> None:
        is_alone = _is_on_devices_alone(effects.name, args, result)
        if self.moment.phase != "bind" and not is_alone:
            self.operators.append((effects.name, self._lanes.name()))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                self._watch_storage(tensor.untyped_storage())

    def _watch_storage(self, storage: torch.UntypedStorage) -> None:
        key, num_bytes = id(storage), storage.nbytes()
        if key in self._living or not num_bytes:
            return
        self._living.add(key)
        stream = self._lanes.current()
        note = weakref.finalize(storage, self._note_freed, key, num_bytes, stream)
        note.atexit = False

    def _note_freed(self, key: int, num_bytes: int, stream: Any) -> None:
        # The memory goes back to its pool after this call, so it is filled later.
        self._living.discard(key)
        self._freed.append((num_bytes, stream))


def _is_on_devices_alone(name: str, args: Any, result: Any) -> bool:
    """Tell whether `sim` has no operator for this one.

    It has no copies from the host, no marks of the profiler, which is on here alone, and
    records `record_stream` as another fact.

    Returns:
        Whether the operator is one of these.
    """
    tensors = [*args[:1], result]
    devices = {each.device for each in tensors if isinstance(each, torch.Tensor)}
    from_host = len(devices) > 1
    return from_host or name.startswith(("profiler.", "aten.record_stream"))


class _DelayedOperators(AccessRecording):
    """Calls a function before each operator that touches memory."""

    def __init__(self, note: Note, before: Callable[[], None]) -> None:
        super().__init__(note, on_arguments=lambda *_: None, num_events=lambda: 0)
        self._before = before

    @override
    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if not self._is_silent and effects_of(func) is not None:
            self._before()
        return super().__torch_dispatch__(func, types, args, kwargs)


@contextmanager
def on_own_thread() -> Iterator[None]:
    """Run backwards on the calling thread; see Note [Races that show]."""
    with torch.autograd.set_multithreading_enabled(False):
        yield


def _fill_free_blocks(num_bytes: int) -> None:
    """Fill free memory of the current stream's pool, as the next user of it would."""
    blocks = [
        torch.empty(num_bytes, dtype=torch.uint8, device="cuda")
        for _ in range(_NUM_BLOCKS)
    ]
    for block in blocks:
        block.fill_(_NAN_BYTE)
