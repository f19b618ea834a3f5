"""What a synchronizer can be told beyond its parameters, in one immutable place."""

from dataclasses import dataclass

import torch.distributed as dist

from . import arguments
from .arguments import UnusedPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class SynchronizerConfig:
    """Options of a `GradientSynchronizer`; the same on all ranks.

    Attributes:
        process_group: Over which the gradients of plain parameters are summed; they stay
            local without one.
        unused: What `wait()` does about parameters with fewer gradients than required,
            once the backwards have run: raise an "error"; "zeros" for what is missing;
            or "keep_none", zeros too, but None where no rank that sums the gradient has
            one: it takes a flag beside each gradient, and `wait()` waits for the device.
        rebuild: Whether the first `zero_grad()` after a reduced step cuts the buckets
            anew, in the order in which that step's gradients became complete. Every
            `.grad` is then another tensor than before.
        debug: Whether each `wait()` compares what was launched between ranks that share
            buckets, and refuses gradients that were written while they were reduced.

    Raises:
        InvalidArgumentError: A value is none of those listed.
    """

    process_group: dist.ProcessGroup | None = None
    unused: UnusedPolicy = "error"
    rebuild: bool = True
    debug: bool = False

    def __post_init__(self) -> None:
        """Refuse what no synchronizer could do."""
        arguments.checked_policy(self.unused)


DEFAULT_CONFIG = SynchronizerConfig()
