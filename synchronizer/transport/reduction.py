"""The reduction of one bucket: the stream on which it runs, its collective and its dtype.

No other module of the synchronizer names a device module of torch. This one uses only
the names that `torch.cuda`, `torch.cpu` and others share: `Stream`, `current_stream`,
`stream` and `Stream.wait_stream`. On CPU torch's streams do nothing, which is right:
there the host itself runs the kernels, one after the other.
"""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch.autograd import profiler

from syncverify.synchronizer.contract.config import SynchronizerConfig
from syncverify.synchronizer.plan.grouping import BucketPlan
from syncverify.synchronizer.ranks.process_groups import ReductionGroups
from syncverify.synchronizer.transport.comm_hook_transport import HookTransport

# Its name up to torch 2.12 is deprecated in 2.13.
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class Stream(Protocol):
    """A queue of device work; equal and hash-equal when it is the same queue."""

    def wait_stream(self, stream: Any) -> None:
        """Run later work of this stream after all work now queued on another stream."""


class SideStream:
    """A stream for communication, beside the streams that compute on a device."""

    def __init__(self, device: torch.device) -> None:
        self._module = torch.get_device_module(device.type)
        # CPU tensors carry no device index, and `torch.cpu.Stream` takes no device.
        self._device = {} if device.index is None else {"device": device}
        self._stream = cast("Stream", self._module.Stream(**self._device))
        # Streams of CPUs queue nothing, and are not instances of `torch.Stream`.
        self.queues = isinstance(self._stream, torch.Stream)

    def current(self) -> Stream:
        """Return the stream on which the calling thread queues work."""
        return cast("Stream", self._module.current_stream(**self._device))

    def activate(self) -> AbstractContextManager[None]:
        """Return a context in which the thread queues work on the side stream."""
        return cast("AbstractContextManager[None]", self._module.stream(self._stream))

    def wait_for(self, streams: Iterable[Stream]) -> None:
        """Run later work of the side stream after all work now queued on `streams`.

        The streams wrote or read memory that the side stream is going to use.
        """
        for stream in streams:
            self._stream.wait_stream(stream)

    def release_to(self, stream: Stream) -> None:
        """Run later work of `stream` after all work now queued on the side stream.

        The stream is going to read, overwrite or free the memory.
        """
        stream.wait_stream(self._stream)

    def record_use_on_current(self, tensor: torch.Tensor) -> None:
        """Keep a tensor's memory until the work now on the current stream is done.

        The tensor belongs to other code, possibly to another stream, and may be freed
        at once. Costs nothing for a tensor of the current stream.
        """
        if self.queues:
            # When may the memory be reused: the allocator gives it back to the stream of
            # the allocation, and waits for the work recorded here first.
            tensor.record_stream(cast("torch.Stream", self.current()))


def profiled(name: str) -> AbstractContextManager[object]:
    """Return a range for a profile, free of cost without an active profiler.

    `torch.profiler.record_function` takes microseconds even without a profiler. So this
    function reads torch's own flag first; every profiler of `torch.profiler` and
    `torch.autograd.profiler` sets it.
    """
    if profiler._is_profiler_enabled:  # noqa: SLF001
        return profiler.record_function(f"GradientSynchronizer {name}")
    return nullcontext()


class BucketReduction:
    """Casts, sends and unpacks one bucket; all work is on the current stream.

    `owned` are the indices of the elements that hold sums afterwards. `is_last` marks
    the bucket that is launched last in a step. A bucket that stays local starts nothing.
    """

    def __init__(
        self,
        plan: BucketPlan,
        groups: ReductionGroups,
        config: SynchronizerConfig,
        *,
        owned: range,
        is_last: bool,
    ) -> None:
        self._wire = plan.key.wire
        self._group = groups.get(plan.scope) if plan.scope else None
        self.hook: HookTransport | None = None
        if self._group is not None and config.comm_hook is not None:
            self.hook = HookTransport(config.comm_hook, plan, self._group, is_last)
        self._scatters = plan.num_shards > 1
        self._owned = slice(owned.start, owned.stop)
        # Flags come last. They are counts of ranks, which no factor may round to zero.
        flags_start = plan.flags_offset_numel
        end = owned.stop if flags_start is None else flags_start
        self._gradients, self._flags = slice(owned.start, end), slice(end, owned.stop)
        # Orders the current stream after the reduction in flight; on CPU waits for it.
        self._wait: Callable[[], object] | None = None
        # The tensor in the collective: the buffer, or a copy in the wire dtype.
        self._wire_buffer: torch.Tensor | None = None

    def start(self, buffer: torch.Tensor) -> None:
        """Launch the reduction; no other code uses the buffer until `finish`.

        A reduce-scatter is in place: afterwards the owned part holds the sum, and the content
        of the other parts is undefined.

        Source:
            NCCL documents a reduce-scatter as in place where the output is the rank's
            own part of the input. Gloo copies its input first.
        """
        # When may the memory of a copy be reused: it is allocated on this stream, and this
        # object frees it in `finish`, after the last read was queued here. So the next user
        # of the memory, on the same stream, is ordered after that read.
        wire = self._wire_buffer = self._wire.load(buffer)
        if self.hook is not None:
            self._wait = self.hook.start(wire)
            return
        if self._scatters:
            owned = wire[self._owned]
            work = _reduce_scatter(owned, wire, group=self._group, async_op=True)
        else:
            work = dist.all_reduce(wire, group=self._group, async_op=True)
        assert work is not None, "this rank is a member of the group it reduces over"
        self._wait = work.wait

    def finish(self, buffer: torch.Tensor, scale: float | torch.Tensor) -> bool:
        """Return whether there was a sum; order the current stream after all launches.

        The buffer then holds the gradients. Those that are reduced here are multiplied
        by `scale`. Harmless without a launch.
        """
        wait, self._wait = self._wait, None
        if wait is None:
            return False
        wait()
        wire, self._wire_buffer = self._wire_buffer, None
        assert wire is not None, "a reduction has something to reduce"
        gradients, flags = self._gradients, self._flags
        self._wire.unload(wire[gradients], buffer[gradients], scale)
        if flags.start < flags.stop:
            self._wire.unload(wire[flags], buffer[flags], 1.0)
        return True
