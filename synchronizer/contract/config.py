"""Options of a synchronizer, in one immutable object."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

import torch
import torch.distributed as dist

from syncverify.synchronizer.contract.arguments import (
    AxisReduction,
    GradientHook,
    GroupReduction,
    Mode,
    ReplicaPolicy,
    Scaling,
    UnusedPolicy,
    refuse,
)
from syncverify.synchronizer.contract.comm_hook import CommHook


@dataclass(frozen=True, slots=True, kw_only=True)
class SynchronizerConfig:
    """Options of a `GradientSynchronizer`; equal on all ranks.

    Attributes:
        process_group: Process group over which gradients of ordinary
            parameters (no DTensors) are reduced. None keeps them local.
        allow_local_only: Whether `bind()` accepts that no gradient is reduced on more than one
            rank: all trained parameters are ordinary, and there is no `process_group`.
        process_group_reduction: Reduction over `process_group`: "sum", or "avg" for the
            mean of the ranks.
        axis_reductions: Reduction over a mesh axis on which a parameter is replicated.
            The key is the name of the axis, or its index on a mesh without names.

            * "sum": the default of every axis.
            * "avg": the sum divided by the size of the axis.
            * "none": no reduction.

            Axes on which a parameter is sharded are never reduced.
        wire_dtype: Dtype in which gradients are sent and summed. None is the dtype in
            which they are accumulated. A copy of a bucket exists from its launch to
            `wait()`. Complex gradients keep their dtype.
        scaling: The moment at which an average is divided.

            * "after" the sum: an overflow shows as infinity. Free where `wait(scale=)`
              multiplies anyway.
            * "split": by a power of two near the square root before, by the rest after.
              For a narrow `wire_dtype` and many ranks.
        unused: Result of `wait()` for parameters with fewer gradients than required,
            once all backwards have run.

            * "error": raise an error.
            * "zeros": zeros for the missing gradients.
            * "keep_none": zeros as well, but None where no rank of the sum has a
              gradient. Adds a flag for each gradient, and `wait()` waits for the
              device.
        unequal_replicas: Action of `bind()` where ranks that reduce the gradient of a parameter
            hold different values of the parameter.

            * "error": raise an error. Each rank reads its parameters once, and compares
              checksums of the bits, with the plans.
            * "broadcast": `bind()` ends with `broadcast_replicas()`.
            * "keep": compare nothing.
        rebuild: Whether the first `zero_grad()` after a reduced step cuts the buckets
            anew, in the order in which gradients of that step became complete. Every
            `.grad` is then a new tensor.
        mode: "all_reduce" gives all sums to every rank. "reduce_scatter" gives one
            equal part of a bucket's sums to each of its ranks, for half the traffic.
            The other parts hold no gradients after `wait()`. So `.grad` is None until
            `zero_grad()`, and `owned_grads()` lists the valid parts. Not with
            `unused="keep_none"` or a comm hook.
        comm_hook: Function that reduces each summed bucket in place of an all-reduce;
            see `HookBucket`, and `syncverify.synchronizer.hooks` for ready ones. Must be equal on
            all ranks; no check is possible. Where the hook of one rank raises, the
            other ranks wait until their process group gives up.
        check_finite: Whether `wait()` raises on a NaN or an infinity in a gradient of
            this rank, by name, or in a sum that this rank owns. So every rank of the
            sum learns of it. All reductions are complete by then, so no rank hangs in
            this step. Ranks that do not share the parameter continue. The check reads
            every gradient twice, and `wait()` waits for the device.
        gradient_hook: Language of the hook that autograd calls for each gradient.

            * "python": the default.
            * "cpp": less time for each gradient on CPU, which many small gradients and
              `set_to_none=True` notice. The first `bind()` compiles it, once for all
              processes of a user, with a C++ compiler and ninja.

    Raises:
        InvalidArgumentError: A value is not in its list, or two values contradict.
    """

    process_group: dist.ProcessGroup | None = None
    process_group_reduction: GroupReduction = "sum"
    allow_local_only: bool = False
    axis_reductions: Mapping[str | int, AxisReduction] = field(default_factory=dict)
    wire_dtype: torch.dtype | None = None
    scaling: Scaling = "after"
    unused: UnusedPolicy = "error"
    unequal_replicas: ReplicaPolicy = "error"
    rebuild: bool = True
    mode: Mode = "all_reduce"
    comm_hook: CommHook | None = None
    check_finite: bool = False
    gradient_hook: GradientHook = "python"

    def __post_init__(self) -> None:
        """Refuse values that no synchronizer supports."""
        for name, words in _WORDS.items():
            _refuse_unknown_word(name, getattr(self, name), words)
        wire_dtype: object = self.wire_dtype
        if wire_dtype is not None and not (
            isinstance(wire_dtype, torch.dtype)
            and wire_dtype.is_floating_point
            and wire_dtype.itemsize > 1
        ):
            expected = "a floating point dtype of 2 bytes or more, or None"
            refuse("wire_dtype", expected, wire_dtype)
        object.__setattr__(
            self, "axis_reductions", _checked_axis_reductions(self.axis_reductions)
        )
        if not (self.comm_hook is None or callable(self.comm_hook)):
            refuse("comm_hook", "a function of a HookBucket, or None", self.comm_hook)
        if self.mode == "reduce_scatter" and self.unused == "keep_none":
            # A reduce-scatter would scatter the flags too, and it sets every `.grad` to None.
            refuse("mode", "'all_reduce', which unused='keep_none' requires", self.mode)
        if self.mode == "reduce_scatter" and self.comm_hook is not None:
            refuse("mode", "'all_reduce', which a comm_hook requires", self.mode)


# By name of the option.
_WORDS = {
    "process_group_reduction": GroupReduction,
    "scaling": Scaling,
    "unused": UnusedPolicy,
    "unequal_replicas": ReplicaPolicy,
    "mode": Mode,
    "gradient_hook": GradientHook,
}


def _refuse_unknown_word(name: str, word: object, words: object) -> None:
    known = get_args(words)
    if word not in known:
        refuse(name, f"one of {', '.join(map(repr, known))}", word)


def _checked_axis_reductions(
    value: Mapping[str | int, AxisReduction],
) -> Mapping[str | int, AxisReduction]:
    """Return a copy, which the caller cannot change."""
    name = "axis_reductions"
    if not isinstance(value, Mapping):
        refuse(name, "a mapping from mesh axes to reductions", value)
    for axis, word in value.items():
        is_index = isinstance(axis, int) and not isinstance(axis, bool) and axis >= 0
        if not (is_index or isinstance(axis, str)):
            refuse(name, "keyed by the names or indices of mesh axes", dict(value))
        _refuse_unknown_word(f"{name}[{axis!r}]", word, AxisReduction)
    return dict(value)


DEFAULT_CONFIG = SynchronizerConfig()
