"""Causes: the mistakes that violations are known by, and the cause of one wrong gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Final

from syncverify.judge.violation import Circumstance
from syncverify.trace.source_lines import Origin


@dataclass(frozen=True, slots=True)
class Mistake:
    """The words that explain a cause that violations may have."""

    meaning: str  # the mistake, in one sentence
    hint: str  # the repair to try first
    _: KW_ONLY
    hint_of_means: str = ""  # under a contract of means; "" if it is the same
    # Under a contract with a divide factor; "" if it is the same.
    hint_of_factors: str = ""
    # It tells the place or the count of an error, but not its reason. Another scenario, often a
    # smaller one, may show a better cause of the same defect.
    is_vague: bool = False
    # The value of a gradient tells it. Several mistakes may lead to one value; where the trace of
    # the run leaves only one, that one is certain.
    is_of_value: bool = False
    # Circumstance of the findings that it explains; see Note [When it is wrong].
    shows: Circumstance | None = None
    # Causes of the same property that the same defect has then as well.
    leads_to: tuple[str, ...] = ()


# Mistakes by the short name of their cause, which is stable across scenarios.
Mistakes = Mapping[str, Mistake]
# Causes that several properties have. A cause of one property is in the module of the property.
OF_SEVERAL: Final[Mistakes] = {
    "gradient_missing": Mistake(
        "`.grad` is None after wait()",
        "leave the reduced gradient in `.grad` after wait()",
    ),
    "wrong_shape": Mistake(
        "the shape of the gradient is different from that of its parameter",
        "give every gradient the local shape of its parameter",
    ),
    "wrong_dtype": Mistake(
        "the dtype of the gradient is different from the one that its parameter requires",
        "accumulate and reduce in the gradient's dtype, `param.grad_dtype` if set",
    ),
    "not_finite": Mistake(
        "Inf or NaN where the right gradient is finite",
        "clear buffers before their first use, and scale before sums overflow",
        is_of_value=True,
    ),
    "overflow_hidden": Mistake(
        "a finite number where a contribution is Inf or NaN",
        "keep Inf and NaN: the training program needs them to skip the step",
    ),
    "never_written": Mistake(
        "the gradient is all zeros",
        "accumulate into the very memory that `.grad` shows after wait()",
        is_of_value=True,
    ),
    "erased": Mistake(
        "the gradient was there, and was cleared or multiplied by 0",
        "clear gradients in zero_grad() only, and check the factors that multiply them",
    ),
    "view_lost": Mistake(
        "`.grad` no longer lies in the memory that is reduced",
        "in every backward, check that `.grad` is the view, and copy it back if not",
    ),
    "hook_too_early": Mistake(
        "a hook sends or reads `.grad` before autograd has added to it",
        "register the hook with `register_post_accumulate_grad_hook`: a hook of "
        "`register_hook` or `register_prehook` runs before autograd adds to `.grad`",
        shows=Circumstance.IN_TENSOR_HOOK,
    ),
    "not_reset": Mistake(
        "a step was right, and an equal step after it reduced nothing",
        "reset counters and flags of a step in wait() or zero_grad(): the first step "
        "was right, and this one starts with the state that it left",
        shows=Circumstance.AFTER_RIGHT_STEP,
    ),
    "not_reduced": Mistake(
        "no collective of that step with other ranks has the gradient",
        "launch every bucket, the last one too, over all ranks with replicas, before "
        "wait() returns",
    ),
    "result_dropped": Mistake(
        "the gradient was reduced, and the result is not in `.grad`",
        "copy the reduced values into the memory of `.grad`, or reduce that memory itself",
        is_of_value=True,
    ),
    "rank_contribution_missing": Mistake(
        "contributions of some ranks are missing",
        "reduce every bucket, over every mesh axis on which its parameters are "
        "Replicate, and wait for it",
        is_of_value=True,
    ),
    "foreign_contribution": Mistake(
        "ranks that hold other parts of the parameter contribute",
        "reduce only over mesh axes on which the parameter is Replicate; ordinary "
        "tensors stay local",
        is_of_value=True,
    ),
    "reduced_early": Mistake(
        "the gradient was reduced before it was complete",
        "reduce once per step, after the last gradient of its bucket in the last micro-batch",
        is_of_value=True,
    ),
    "reduced_twice": Mistake(
        "a sum over ranks was summed again",
        "launch each bucket once per step, over the ranks of each mesh axis or over "
        "those of all axes at once, and reset its state in zero_grad()",
    ),
    "micro_batch_missing": Mistake(
        "contributions of some micro-batches are missing",
        "add each micro-batch to the accumulated gradient, and clear it in zero_grad() only",
        is_of_value=True,
    ),
    "contribution_doubled": Mistake(
        "some contribution is counted twice",
        "reduce each gradient once per step, and never add to one already reduced",
        is_of_value=True,
    ),
    "placeholder_added": Mistake(
        "a gradient that a function has added to `main_grad` contains what the function returned",
        "drop the gradient that autograd brings where `grad_added_to_main_grad` is true",
        is_of_value=True,
    ),
    "scaled": Mistake(
        "every element is multiplied by one factor",
        "reduce once, and do not divide or multiply: the contract promises the sum",
        hint_of_means=(
            "reduce once, and divide the sum once per step, by the number of ranks that "
            "contribute: the contract promises the mean"
        ),
        hint_of_factors=(
            "divide each gradient that has a replicated axis once by the declared factor, also on "
            "axes of one rank; others are not divided"
        ),
        is_of_value=True,
    ),
    "stale": Mistake(
        "the gradient contains gradients of an earlier step",
        "clear the memory that is reduced, and point `.grad` at it again in zero_grad()",
        is_of_value=True,
    ),
    "misplaced": Mistake(
        "the gradient has the values of another parameter's gradient",
        "use the same bucket offset where a gradient is written and where it is read, "
        "and fill buckets in the same order on every rank",
        is_of_value=True,
    ),
    "unpacked_in_other_order": Mistake(
        "gradients are packed into a bucket in one order, and unpacked in another one",
        "walk the parameters of a bucket in the same order in both lines, such as by one list",
    ),
    "buffer_shared": Mistake(
        "a bucket is packed into memory that the launch of an earlier bucket still needs",
        "make one buffer for each bucket, or copy the sums of the earlier bucket back before "
        "the next one is packed: a wait alone loses them",
    ),
    "memory_shared": Mistake(
        "two gradients lie in the same bytes",
        "give each parameter its own slice of a bucket, and count elements in one place only",
    ),
    "rounded": Mistake(
        "the gradient was summed in a narrower dtype",
        "accumulate and reduce in the gradient's dtype, on every leg of the reduction",
        is_of_value=True,
    ),
    "out_of_bound": Mistake(
        "the gradient is farther off than rounding in its dtype can be",
        "send and sum gradients in their dtype, and each in its parameter's memory format",
        is_vague=True,
    ),
    "partly_wrong": Mistake(
        "some elements are wrong",
        "check the offset and length of this parameter's slice in its bucket",
        is_vague=True,
    ),
    "miscounted": Mistake(
        "contributions are counted too often or too rarely",
        "check how often each backward is reduced and accumulated",
        is_vague=True,
    ),
    "unexplained": Mistake(
        "no known mistake gives this value",
        "compare the collectives above with those of a step that is right",
        is_vague=True,
    ),
    "failure_hidden": Mistake(
        "a collective failed, and no error came to the training program",
        "re-raise errors from `wait()`; nothing that a failed group sends is right",
    ),
}
VAGUE_CAUSES: Final = frozenset(n for n, each in OF_SEVERAL.items() if each.is_vague)
VALUE_CAUSES: Final = frozenset(n for n, each in OF_SEVERAL.items() if each.is_of_value)


def is_exception(cause: str) -> bool:
    """Tell whether a cause is an exception of the subject: `raised_` and its class."""
    return cause.startswith("raised_")


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a wrong gradient."""

    kind: str  # stable across scenarios
    text: str  # a sentence that names ranks, micro-batches, steps, parameters
    is_certain: bool = True
    lines: tuple[Origin, ...] = ()  # named by the text
