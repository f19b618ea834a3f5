"""What happens to a bucket between its launch and the end of `wait()`, on one stream."""

import torch

from .agreement_check import choose_check
from .config import SynchronizerConfig
from .grouping import BucketPlan
from .per_axis import AxesInFlight
from .process_groups import ReductionGroups
from .transport import Pending, choose_transport


class BucketReduction:
    """Compares, packs, sends and unpacks one bucket; everything on the current stream.

    Args:
        plan: Of the bucket.
        groups: Where to find the process groups to reduce over.
        owned: Elements of the buffer that hold sums afterwards.
        config: How to reduce.
        is_last: Whether it is the last bucket of the step that is reduced.
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
        self._check = choose_check(plan, groups)
        self._wire = plan.key.wire
        # Flags come last, and are counts, which no factor may make zero.
        flags_start = plan.flags_offset_numel
        end = owned.stop if flags_start is None else flags_start
        self._gradients = slice(owned.start, end)
        self._flags = slice(end, owned.stop)
        self._pending: Pending | None = None
        # What is being summed: the buffer, or a copy in another dtype.
        self._travelling: torch.Tensor | None = None

    @property
    def communicates(self) -> bool:
        """Whether there is anything to launch."""
        return self._transport is not None or self._check is not None

    def start(self, buffer: torch.Tensor) -> None:
        """Launch everything.

        Args:
            buffer: Shape (N,); nobody may touch it until `finish`.
        """
        if self._check is not None:
            # Read on this stream before the reduction may overwrite it there.
            self._check.start(buffer)
        if self._transport is not None:
            # A copy is allocated on this stream, held until `finish`, and freed after
            # the stream has queued its last read: its pool may give the memory to
            # whatever the stream does next.
            self._travelling = self._wire.load(buffer)
            self._pending = self._transport.start(self._travelling)

    def finish(self, buffer: torch.Tensor, scale: float | torch.Tensor) -> bool:
        """Order the current stream after everything; harmless when nothing was launched.

        Args:
            buffer: Shape (N,), holds the gradients after it.
            scale: Multiplies every gradient that is reduced here.

        Returns:
            Whether there were any.
        """
        if self._check is not None:
            self._check.finish()
        pending, self._pending = self._pending, None
        if pending is None:
            return False
        pending.finish()
        self._unload(buffer, scale)
        return True

    def _unload(self, buffer: torch.Tensor, scale: float | torch.Tensor) -> None:
        wire, self._travelling = self._travelling, None
        assert wire is not None, "a reduction has something to reduce"
        gradients, flags = self._gradients, self._flags
        self._wire.unload(wire[gradients], buffer[gradients], scale)
        if flags.start < flags.stop:
            self._wire.unload(wire[flags], buffer[flags], 1.0)

    def give_up(self) -> None:
        """Launch nothing more of what is in flight."""
        if isinstance(self._pending, AxesInFlight):
            self._pending.left.clear()

    def refuse_disagreement(self, label: str) -> None:
        """Refuse gradients that differ between ranks that are checked; it is finished.

        Args:
            label: Of the bucket.

        Raises:
            GradientDisagreementError: Some rank holds another gradient.
        """
        if self._check is not None:
            self._check.refuse_disagreement(label)
