"""What a synchronizer can be told beyond its parameters, in one immutable place."""

from dataclasses import dataclass

import torch.distributed as dist

from . import arguments
from .arguments import Mode, UnusedPolicy
from .comm_hook import CommHook


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
        mode: "all_reduce" gives every rank all sums. "reduce_scatter" gives each rank
            of a bucket one equal part of them, for half the traffic: the rest of the
            bucket holds no gradients after `wait()`, so `.grad` of its parameters is
            None until `zero_grad()`, and `owned_grads()` lists what is right. Not with
            `unused="keep_none"` or a comm hook.
        comm_hook: Reduces each bucket that is summed over ranks, in place of an
            all-reduce; see `HookBucket`, and `synchronizer.hooks` for ready ones. The
            same on all ranks, who cannot check it: where one raises, the others wait
            for it until their process group gives up.
        check_finite: Whether `wait()` raises where a gradient of this rank holds a NaN or
            an infinity, by name, or a sum does that this rank owns: so the ranks that sum
            the parameter learn of it too. All reductions are over by then, and no rank
            hangs in this step; but ranks that share no such parameter go on. It reads
            every gradient twice, and `wait()` waits for the device.
        timings: Whether `timings()` has something to tell.

    Raises:
        InvalidArgumentError: A value is none of those listed, or two do not go together.
    """

    process_group: dist.ProcessGroup | None = None
    unused: UnusedPolicy = "error"
    mode: Mode = "all_reduce"
    comm_hook: CommHook | None = None
    check_finite: bool = False
    timings: bool = False

    def __post_init__(self) -> None:
        """Refuse what no synchronizer could do."""
        arguments.checked_policy(self.unused)
        arguments.checked_mode(
            self.mode, self.unused, has_comm_hook=self.comm_hook is not None
        )


DEFAULT_CONFIG = SynchronizerConfig()
