"""The reduction of a bucket, from its launch to the end of `wait()`, on one stream."""

import torch

from syncverify.synchronizer.contract.config import SynchronizerConfig
from syncverify.synchronizer.plan.grouping import BucketPlan
from syncverify.synchronizer.ranks.process_groups import ReductionGroups
from syncverify.synchronizer.transport.collectives import (
    PendingReduction,
    choose_transport,
)
from syncverify.synchronizer.transport.comm_hook_transport import HookTransport


class BucketReduction:
    """Casts, sends and unpacks one bucket; all work is on the current stream.

    `owned` are the indices of the elements that hold sums afterwards. `is_last` marks
    the bucket that is launched last in a step.
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
        self._transport = choose_transport(plan, groups, config, is_last=is_last)
        self._wire = plan.key.wire
        # Flags come last. They are counts of ranks, which no factor may round to zero.
        flags_start = plan.flags_offset_numel
        end = owned.stop if flags_start is None else flags_start
        self._gradients = slice(owned.start, end)
        self._flags = slice(end, owned.stop)
        self._pending: PendingReduction | None = None
        # The tensor in the collective: the buffer, or a copy in the wire dtype.
        self._wire_buffer: torch.Tensor | None = None

    @property
    def hook_state(self) -> dict[str, torch.Tensor]:
        """State of the comm hook for the bucket, to be changed in place."""
        return (
            self._transport.state if isinstance(self._transport, HookTransport) else {}
        )

    @property
    def communicates(self) -> bool:
        """Tell whether there is anything to launch."""
        return self._transport is not None

    def start(self, buffer: torch.Tensor) -> None:
        """Launch the reduction; no other code uses the buffer until `finish`."""
        assert self._transport is not None, "local buckets are not launched"
        # When may the memory of a copy be reused: it is allocated on this stream, and this
        # object frees it in `finish`, after the last read was queued here. So the next user
        # of the memory, on the same stream, is ordered after that read.
        self._wire_buffer = self._wire.load(buffer)
        self._pending = self._transport.start(self._wire_buffer)

    def finish(self, buffer: torch.Tensor, scale: float | torch.Tensor) -> bool:
        """Return whether there was a sum; order the current stream after all launches.

        The buffer then holds the gradients. Those that are reduced here are multiplied
        by `scale`. Harmless without a launch.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return False
        pending.finish()
        self._unload(buffer, scale)
        return True

    def _unload(self, buffer: torch.Tensor, scale: float | torch.Tensor) -> None:
        wire, self._wire_buffer = self._wire_buffer, None
        assert wire is not None, "a reduction has something to reduce"
        gradients, flags = self._gradients, self._flags
        self._wire.unload(wire[gradients], buffer[gradients], scale)
        if flags.start < flags.stop:
            self._wire.unload(wire[flags], buffer[flags], 1.0)
