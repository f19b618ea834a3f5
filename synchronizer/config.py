"""What a synchronizer can be told beyond its parameters, in one immutable place."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from . import arguments
from .arguments import AxisReduction, GroupReduction, Mode, Scaling, UnusedPolicy
from .comm_hook import CommHook


@dataclass(frozen=True, slots=True, kw_only=True)
class SynchronizerConfig:
    """Options of a `GradientSynchronizer`; the same on all ranks.

    Attributes:
        process_group: Over which the gradients of plain parameters are reduced; they stay
            local without one.
        process_group_reduction: What that is: "sum", or "avg" for the mean of the ranks.
        axis_reductions: What happens over a mesh axis on which a parameter is replicated,
            by the axis' name, or its index on a mesh without names. "sum", which is what
            the others do; "avg", the sum divided by the size of the axis; "none"; or
            "check": the ranks of the axis must hold the same gradient bit by bit, but for
            the sign of zero, before it is reduced over other axes; `wait()` then waits for
            the device. Axes on which a parameter is sharded are never reduced.
        wire_dtype: In which gradients are sent and summed, if not in that in which they
            are accumulated. A copy exists from the launch of a bucket to `wait()`.
            Complex gradients go as they are.
        scaling: When averages are divided: "after" the sum, whose overflow shows as
            infinity, and which costs nothing where `wait(scale=)` multiplies anyhow;
            "before" it, where small values are rounded to zero unseen; or "split": by a
            power of two near the square root before, by the rest after, for a narrow
            `wire_dtype` and many ranks.
        unused: What `wait()` does about parameters with fewer gradients than required,
            once the backwards have run: raise an "error"; "zeros" for what is missing;
            or "keep_none", zeros too, but None where no rank that sums the gradient has
            one: it takes a flag beside each gradient, and `wait()` waits for the device.
        rebuild: Whether the first `zero_grad()` after a reduced step cuts the buckets
            anew, in the order in which that step's gradients became complete. Every
            `.grad` is then another tensor than before. Not where an axis is checked.
        debug: Whether each `wait()` compares what was launched between ranks that share
            buckets, and refuses gradients that were written while they were reduced.
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
    process_group_reduction: GroupReduction = "sum"
    axis_reductions: Mapping[str | int, AxisReduction] = field(default_factory=dict)
    wire_dtype: torch.dtype | None = None
    scaling: Scaling = "after"
    unused: UnusedPolicy = "error"
    rebuild: bool = True
    debug: bool = False
    mode: Mode = "all_reduce"
    comm_hook: CommHook | None = None
    check_finite: bool = False
    timings: bool = False

    def __post_init__(self) -> None:
        """Refuse what no synchronizer could do."""
        refuse = arguments.refuse_other_word
        refuse("process_group_reduction", self.process_group_reduction, GroupReduction)
        refuse("scaling", self.scaling, Scaling)
        refuse("unused", self.unused, UnusedPolicy)
        refuse("mode", self.mode, Mode)
        arguments.refuse_no_wire_dtype(self.wire_dtype)
        reductions = arguments.checked_axis_reductions(self.axis_reductions)
        object.__setattr__(self, "axis_reductions", reductions)
        arguments.refuse_contradiction(
            self.mode, self.unused, has_comm_hook=self.comm_hook is not None
        )

    @property
    def may_rebuild(self) -> bool:
        """Whether buckets can be cut anew: ranks that check each other share no sum.

        So nobody decides for all of them in which order gradients became complete.
        """
        return self.rebuild and "check" not in self.axis_reductions.values()


DEFAULT_CONFIG = SynchronizerConfig()
