"""Hints: the repair to try first, by cause."""

from __future__ import annotations

import re

from syncverify.judge.cause import VAGUE_CAUSES, VALUE_CAUSES
from syncverify.judge.evidence import Ended, Evidence, WrongGradient
from syncverify.judge.violation import Violation
from syncverify.search.found_violation import FoundViolation

_OF_THE_STEP_BEFORE = (
    "; it was seen after a step that was right only: look for a counter, or a number of "
    "micro-batches, that is not set back"
)
_OF_ANOTHER_COUNT = (
    "; step {step} has {count} micro-batches, and the step before had {before}: look at what "
    "set_required_accumulations() changes"
)
_SET_BACK = "set back in wait() or zero_grad() what is left over"

_HINTS = {
    # every_rank_finishes
    "raised": "the program is legal: what this line is given is wrong here, or it has to accept it",
    "process_died": "run the replay line with --backend sim to see the Python error, if any",
    # every_wait_completes
    "deadlock": "issue the same collectives in the same order on every rank of a group",
    "never_returns": "end every wait by an event of this step, and every loop by a bound",
    "step_bound": "poll only for work that every rank does in this step, or wait instead",
    # collectives_match_across_ranks, launch_order_agrees
    "collective_mismatch": (
        "build and launch buckets in an order that does not depend on the rank: not in that "
        "of a set, of id() or of a hash"
    ),
    "groups_mixed": (
        "keep gradients in one bucket only if they are reduced over the same ranks: make the "
        "group a part of the key of buckets"
    ),
    "buckets_differ": (
        "fill buckets in an order, and to sizes, that all ranks have in common: not in the "
        "order of a set, of id() or of a hash, and not by bytes that one rank has"
    ),
    "collective_missing": "issue every collective on all ranks of its group, or on none",
    "bucket_mismatch": (
        "put the same parameters into the n-th bucket on every rank, used or not, and in an "
        "order that comes from no set, id() or hash"
    ),
    "deadlock_hazard": (
        "launch on all communicators in one order that does not depend on the rank"
    ),
    "opposing_messages": (
        "issue messages that cross each other with batch_isend_irecv, or receive first on "
        "one of the two ranks"
    ),
    # values
    "gradient_missing": "leave the reduced gradient in `.grad` after wait()",
    "wrong_shape": "give every gradient the local shape of its parameter",
    "wrong_dtype": "accumulate and reduce in the gradient's dtype, `param.grad_dtype` if set",
    "not_finite": "clear buffers before their first use, and scale before sums overflow",
    "overflow_hidden": (
        "pass on Inf and NaN: the training program skips the step for them, and sees none"
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
    "scaled": "reduce once, and neither divide nor multiply: the contract asks for the sum",
    "stale": "clear the memory that is reduced, and point `.grad` at it again in zero_grad()",
    "misplaced": (
        "check the offset of each gradient in its bucket, where it is put in and where it is "
        "read, and fill buckets in an order that does not depend on the rank"
    ),
    "no_owner": "let owner() be true on one rank of each set of replicas, in all steps",
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
    "gradient_left": "clear in zero_grad() the memory that `.grad` shows",
    "hook_left": "keep the handles of all hooks, and remove them in unbind()",
    "buffer_left": "set `.grad` to None, or to a copy, in unbind()",
    "parameter_changed": "leave the values of parameters alone: only gradients are yours",
    "hook_lost": "remove a hook by the handle that its registration returned, and no other",
    "attribute_left": "delete in unbind() the attributes that bind() gave to parameters",
    "parameters_joined": "give each parameter a storage of its own in unbind()",
    "setting_changed": "set torch's defaults back, by a context manager where there is one",
    "generator_seeded": (
        "draw from a `torch.Generator` or a `random.Random` of your own; seed no global one"
    ),
    "generator_rewound": (
        "restore the state of the same call, as `torch.random.fork_rng()` does, and none that "
        "was saved in bind()"
    ),
    "over_cap": (
        "close a bucket before a gradient that would bring it over the cap; count bytes of "
        "local parts"
    ),
    "piles_up": "drop handles, copies and records of a step in wait() or zero_grad(), and make "
    "process groups once, in bind()",
    "failure_hidden": "let errors of `wait()` pass; nothing that a failed group sends is right",
    "collective_after_unbind": "remove all hooks in unbind()",
    "backward_not_plain": "restore in unbind() all that bind() changed",
    "reduced_twice": (
        "launch each bucket once per step, over the ranks of each mesh axis or over those of "
        "all axes at once, and reset its state in zero_grad()"
    ),
    "unclear_error": (
        "name the caller's mistake and its repair in words; a bare error of Python, such as "
        "a KeyError, names neither"
    ),
    # determinism
    "acts_otherwise": (
        "let nothing depend on the order of a set, on id(), on the clock or on unseeded "
        "random numbers"
    ),
    "sums_otherwise": "let no gradient depend on the clock or on unseeded random numbers",
    "ends_otherwise": "replay a few times: the failure depends on chance",
    "not_reset": (
        "set counters and flags of a step back, in wait() or zero_grad(): the first step was "
        "right, and this one starts where that one ended"
    ),
    "hook_too_early": (
        "register the hook with `register_post_accumulate_grad_hook`: a hook of "
        "`register_hook` or `register_prehook` runs before autograd adds to `.grad`"
    ),
    "not_reduced": (
        "launch every bucket, over all ranks with replicas, by the time wait() returns, the last "
        "one included"
    ),
    # orderings
    "reduced_before_accumulated": (
        "before a launch, let its stream wait for every stream that wrote into the bucket"
    ),
    "accumulated_unordered": (
        "let the stream that prepares a bucket wait for those that accumulate into it"
    ),
    "touched_in_flight": (
        "wait for the collective, on the stream that touches its memory next, before that"
    ),
    "collectives_overlap": (
        "wait for the first collective before the second one is launched on its memory"
    ),
    "read_before_reduced": (
        "let the stream that is current in wait() wait for every reduction, there and then"
    ),
    "zeroed_in_flight": "clear on a stream that has waited for the reductions",
    "used_before_zeroed": "clear on the stream that accumulates, or let that one wait",
    "freed_in_use": (
        "hold a reference until the stream of the pool has waited, or call record_stream()"
    ),
    "stream_changed": "leave every stream context that you enter, by a `with` block",
    "never_overlapped": (
        "launch a bucket from the hook that sees its last gradient, not when backward ends"
    ),
}


_OF_A_LIST = re.compile(
    r" in step 0, bind: .*('list' object has no attribute|list indices must be|not list\b"
    r"|unhashable type: 'list')"
)
_GROUPS = (
    "; {argument} is a list of lists of parameters, [[p0, p1], [p2]], no flat list and no dicts "
    "of an optimizer: `for group in {argument}: for parameter in group: ...`"
)
_OF_FROZEN = (
    ", and one that holds a parameter without a gradient (frozen): count only parameters that "
    "require one"
)
# Hints of causes that another contract changes.
_HINTS_OF_MEANS = {
    "scaled": (
        "reduce once, and divide the sum once, by the number of ranks that contribute: the "
        "contract asks for the mean"
    ),
}
CAUSES_WITH_HINT = frozenset(_HINTS)


def certainty(cause: str, evidence: Evidence) -> str:
    """Return how sure a cause is: certain, likely, one of several, or open."""
    if evidence.readings:
        return f"one of several: {'; or '.join(evidence.readings)} would give this value too"
    # An error is seen where it is raised, and often made elsewhere.
    if cause in VAGUE_CAUSES or cause.startswith("raised_"):
        return "which tells the place: the reason is open"
    if not evidence.is_certain:
        return (
            "likely: the run shows that nothing is sent, and a hook that acts too early"
        )
    if cause in VALUE_CAUSES and not evidence.is_proven:
        return "likely: no other mistake that is known gives this value"
    return "certain: the run shows it"


def hint(violation: Violation) -> str:
    """Return the repair to try first.

    A list that is no parameter and no dict, in the constructor or in bind(), is likely a group.
    """
    cause, evidence = violation.cause, violation.evidence
    if not cause.startswith("raised_"):
        if isinstance(evidence, WrongGradient):
            return hint_of(cause, evidence.reduction)
        return hint_of(cause)
    words = hint_of(cause)
    if not _OF_A_LIST.search(violation.summary):
        return words
    groups = evidence.groups if isinstance(evidence, Ended) else None
    return words + _GROUPS.format(argument=groups or "param_groups")


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
    return _HINTS["raised" if cause.startswith("raised_") else cause]
