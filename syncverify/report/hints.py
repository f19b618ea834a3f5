"""Hints: the repair to try first, by cause."""

from __future__ import annotations

import re

from syncverify.judge.cause import VAGUE_CAUSES, VALUE_CAUSES, is_exception
from syncverify.judge.evidence import Ended, Evidence, WrongGradient
from syncverify.judge.violation import Violation
from syncverify.search.found_violation import FoundViolation

_OF_THE_STEP_BEFORE = (
    "; only a step after a right step is wrong: look for a counter, or a number of "
    "micro-batches, that is not reset"
)
_OF_ANOTHER_COUNT = (
    "; step {step} has {count} micro-batches, and the step before had {before}: look at what "
    "set_required_accumulations() changes"
)
_SET_BACK = "reset the left-over values in wait() or zero_grad()"

_HINTS = {
    # every_rank_finishes
    "raised": (
        "the training program is legal: pass this line the right value, or make it "
        "accept this value"
    ),
    "process_died": "run the replay line with --backend sim to see the Python error, if any",
    # every_wait_completes
    "deadlock": "issue the same collectives in the same order on every rank of a group",
    "never_returns": "end every wait by an event of this step, and every loop by a bound",
    "step_bound": "poll only for work that every rank does in this step, or wait instead",
    # collectives_match_across_ranks, launch_order_agrees
    "collective_mismatch": (
        "build and launch buckets in the same order on every rank: not in the order "
        "of a set, of id() or of a hash"
    ),
    "groups_mixed": (
        "keep gradients in one bucket only if they are reduced over the same ranks: make the "
        "group a part of the key of buckets"
    ),
    "buckets_differ": (
        "fill buckets in the same order and to the same sizes on all ranks: not in "
        "the order of a set, of id() or of a hash, and not by bytes that only one "
        "rank has"
    ),
    "collective_missing": "issue every collective on all ranks of its group, or on none",
    "bucket_mismatch": (
        "put the same parameters into the n-th bucket on every rank, used or not: not "
        "in the order of a set, of id() or of a hash"
    ),
    "deadlock_hazard": ("launch on all communicators in the same order on every rank"),
    "opposing_messages": (
        "issue crossing messages with batch_isend_irecv, or receive first on one of "
        "the two ranks"
    ),
    # values
    "gradient_missing": "leave the reduced gradient in `.grad` after wait()",
    "wrong_shape": "give every gradient the local shape of its parameter",
    "wrong_dtype": "accumulate and reduce in the gradient's dtype, `param.grad_dtype` if set",
    "not_finite": "clear buffers before their first use, and scale before sums overflow",
    "overflow_hidden": (
        "keep Inf and NaN: the training program needs them to skip the step"
    ),
    "never_written": "accumulate into the very memory that `.grad` shows after wait()",
    "erased": "clear gradients in zero_grad() only, and check the factors that multiply them",
    "view_lost": "in every backward, check that `.grad` is the view, and copy it back if not",
    "rank_contribution_missing": (
        "reduce every bucket, over every mesh axis on which its parameters are Replicate, "
        "and wait for it"
    ),
    "result_dropped": (
        "copy the reduced values into the memory of `.grad`, or reduce that memory itself"
    ),
    "foreign_contribution": (
        "reduce only over mesh axes on which the parameter is Replicate; ordinary tensors stay "
        "local"
    ),
    "reduced_early": (
        "reduce once per step, after the backward of its last micro-batch"
    ),
    "micro_batch_missing": (
        "add each micro-batch to the accumulated gradient, and clear it in zero_grad() only"
    ),
    "contribution_doubled": (
        "reduce each gradient once per step, and never add to one already reduced"
    ),
    "scaled": (
        "reduce once, and do not divide or multiply: the contract promises the sum"
    ),
    "stale": "clear the memory that is reduced, and point `.grad` at it again in zero_grad()",
    "misplaced": (
        "use the same bucket offset where a gradient is written and where it is read, "
        "and fill buckets in the same order on every rank"
    ),
    "no_owner": (
        "return True from owner() on one rank of each set of replicas, the same rank "
        "in all steps"
    ),
    "wrong_owner": "reduce a parameter's gradient to the same rank in every step, its owner",
    "rounded": "accumulate and reduce in the gradient's dtype, on every leg of the reduction",
    "out_of_bound": (
        "send and sum gradients in their dtype, and each in its parameter's memory format"
    ),
    "memory_shared": (
        "give each parameter its own slice of a bucket, and count elements in one place only"
    ),
    "partly_wrong": "check the offset and length of this parameter's slice in its bucket",
    "miscounted": "check how often each backward is reduced and accumulated",
    "unexplained": "compare the collectives above with those of a step that is right",
    "wrong_type": "assign a DTensor to the `.grad` of a DTensor, and an ordinary tensor to others",
    "wrong_mesh": "assign a DTensor on the parameter's own `device_mesh`",
    "wrong_placements": "assign a DTensor with the parameter's placements to `.grad`",
    "wrong_strides": "give `.grad` the parameter's strides, or make it contiguous",
    "keeps_graph": "reduce under `torch.no_grad()`, or assign `gradient.detach()`",
    "inference_tensor": "reduce under `torch.no_grad()` rather than `inference_mode()`",
    "still_partial": "assign a DTensor with the parameter's placements to `.grad`",
    "frozen_received_gradient": "leave parameters with requires_grad=False out of buckets",
    "replicas_differ": "reduce over every mesh axis on which the parameter is Replicate",
    # lifecycle and collectives
    "gradient_left": "in zero_grad(), clear the memory that `.grad` shows",
    "hook_left": "keep the handles of all hooks, and remove them in unbind()",
    "buffer_left": "set `.grad` to None, or to a copy, in unbind()",
    "parameter_changed": (
        "do not change the values of parameters: change gradients only"
    ),
    "hook_lost": "remove a hook by the handle that its registration returned, and no other",
    "attribute_left": (
        "in unbind(), delete the attributes that bind() gave to parameters"
    ),
    "parameters_joined": "in unbind(), give each parameter its own storage",
    "setting_changed": (
        "restore torch's defaults, with a context manager where there is one"
    ),
    "generator_seeded": (
        "draw from your own `torch.Generator` or `random.Random`; do not seed a "
        "global generator"
    ),
    "generator_rewound": (
        "save and restore the state in the same call, as `torch.random.fork_rng()` "
        "does; do not restore one from bind()"
    ),
    "over_cap": (
        "close a bucket before a gradient that would bring it over the cap; count bytes of "
        "local parts"
    ),
    "piles_up": "drop handles, copies and records of a step in wait() or zero_grad(), and make "
    "process groups once, in bind()",
    "failure_hidden": (
        "re-raise errors from `wait()`; nothing that a failed group sends is right"
    ),
    "collective_after_unbind": "remove all hooks in unbind()",
    "backward_not_plain": "in unbind(), restore all that bind() changed",
    "reduced_twice": (
        "launch each bucket once per step, over the ranks of each mesh axis or over those of "
        "all axes at once, and reset its state in zero_grad()"
    ),
    "unclear_error": (
        "raise an error that names the caller's mistake and its repair; a bare Python "
        "error, such as a KeyError, names neither"
    ),
    # determinism
    "acts_otherwise": (
        "do not use the order of a set, id(), the clock or unseeded random numbers"
    ),
    "sums_otherwise": "do not use the clock or unseeded random numbers in gradients",
    "ends_otherwise": "replay a few times: the failure depends on chance",
    "not_reset": (
        "reset counters and flags of a step in wait() or zero_grad(): the first step "
        "was right, and this one starts with the state that it left"
    ),
    "hook_too_early": (
        "register the hook with `register_post_accumulate_grad_hook`: a hook of "
        "`register_hook` or `register_prehook` runs before autograd adds to `.grad`"
    ),
    "not_reduced": (
        "launch every bucket, the last one too, over all ranks with replicas, before "
        "wait() returns"
    ),
    # orderings
    "reduced_before_accumulated": (
        "before the launch, make its stream wait for every stream that wrote into "
        "the bucket"
    ),
    "accumulated_unordered": (
        "make the stream that prepares a bucket wait for the streams that "
        "accumulate into it"
    ),
    "touched_in_flight": (
        "make the next stream that uses this memory wait for the collective"
    ),
    "collectives_overlap": (
        "wait for the first collective before the second one is launched on its memory"
    ),
    "read_before_reduced": (
        "in wait(), make the current stream wait for every reduction"
    ),
    "zeroed_in_flight": "clear on a stream that has waited for the reductions",
    "used_before_zeroed": (
        "clear on the stream that accumulates, or make that stream wait"
    ),
    "freed_in_use": (
        "hold a reference until the stream of the pool has waited, or call record_stream()"
    ),
    "stream_changed": "enter stream contexts with a `with` block, which leaves them",
    "never_overlapped": (
        "launch a bucket from the hook that sees its last gradient, not when backward ends"
    ),
}


_OF_A_LIST = re.compile(
    r"'list' object has no attribute|list indices must be|not list\b|unhashable type: 'list'"
)
_GROUPS = (
    "; {argument} is a list of lists of parameters, [[p0, p1], [p2]], and not a flat "
    "list or the dicts of an optimizer: `for group in {argument}: for parameter in "
    "group: ...`"
)
_OF_FROZEN = (
    ", and also a bucket that holds a parameter without a gradient (frozen): count "
    "only parameters that require one"
)
# Hints of causes that another contract changes.
_HINTS_OF_MEANS = {
    "scaled": (
        "reduce once, and divide the sum once, by the number of ranks that "
        "contribute: the contract promises the mean"
    ),
}
CAUSES_WITH_HINT = frozenset(_HINTS)


def certainty(cause: str, evidence: Evidence) -> str:
    """Return how sure a cause is: certain, likely, one of several, or open."""
    if evidence.readings:
        return f"one of several: {'; or '.join(evidence.readings)} would give this value too"
    # An error is seen where it is raised, and often made elsewhere.
    if cause in VAGUE_CAUSES or is_exception(cause):
        return "open: the run shows the place, and not the reason"
    if not evidence.is_certain:
        return (
            "likely: the run shows that nothing is sent, and that a hook acts too early"
        )
    if cause in VALUE_CAUSES and not evidence.is_proven:
        return "likely: no other known mistake gives this value"
    return "certain: the run shows it"


def hint(violation: Violation) -> str:
    """Return the repair to try first.

    A list that is no parameter and no dict, in the constructor or in bind(), is likely a group.
    """
    cause, evidence = violation.cause, violation.evidence
    if not is_exception(cause):
        if isinstance(evidence, WrongGradient):
            return hint_of(cause, evidence.reduction)
        return hint_of(cause)
    words = hint_of(cause)
    is_of_list = _OF_A_LIST.search(violation.summary) is not None
    if not (isinstance(evidence, Ended) and evidence.phase == "bind" and is_of_list):
        return words
    return words + _GROUPS.format(argument=evidence.groups or "param_groups")


def advice(entry: FoundViolation) -> str:
    """Return the hint of a violation with what was found beside it: a value that is left over.

    A flag may be meant to stay: such a value is a fact of the report, and no hint. A bucket that
    nobody launches may wait for the gradient of a frozen parameter.
    """
    is_set_back = all(each.is_number for each in entry.left_over)
    if entry.fix is not None:
        is_grown = all(each.is_grown for each in entry.left_over)
        is_set_back = entry.fix.sets_back or is_grown
    if entry.left_over and is_set_back:
        return _SET_BACK
    earlier = _of_the_step_before(entry) if entry.starts_wrongly else ""
    waits = entry.violation.cause == "not_reduced" and _is_beside_frozen(entry)
    return f"{hint(entry.violation)}{_OF_FROZEN if waits else ''}{earlier}"


def _of_the_step_before(entry: FoundViolation) -> str:
    """Say how a step that goes wrong differs from the right one before."""
    step, counts = entry.violation.evidence.step or 0, entry.scenario.accumulations
    before, count = counts[step - 1 : step + 1]
    if before == count:
        return _OF_THE_STEP_BEFORE
    return _OF_ANOTHER_COUNT.format(step=step, count=count, before=before)


def _is_beside_frozen(entry: FoundViolation) -> bool:
    """Tell whether a group of the violation's parameters has a frozen parameter."""
    listed, names = entry.scenario.parameters, entry.violation.parameters
    named = [spec for spec in listed if spec.name in names]
    groups = {spec.group for spec in named or listed}
    return any(not spec.requires_grad and spec.group in groups for spec in listed)


def hint_of(cause: str, reduction: str = "sum") -> str:
    """Return the repair of a cause under a contract; `raised_` with a type is one, too."""
    if reduction == "mean" and cause in _HINTS_OF_MEANS:
        return _HINTS_OF_MEANS[cause]
    return _HINTS["raised" if is_exception(cause) else cause]
