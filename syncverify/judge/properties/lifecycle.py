"""Properties of the calls of a subject: they end, and keep their promises."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from typing import Final

from syncverify.judge.evidence import Evidence, ended
from syncverify.judge.properties.circumstances import (
    after_earlier_steps,
    after_like_step,
    skips,
)
from syncverify.judge.properties.copied_buckets import refused_order
from syncverify.judge.properties.judgement import Judgement, Property
from syncverify.judge.properties.launch_order import parting
from syncverify.judge.properties.matching import groups_that_differ
from syncverify.judge.properties.unbinding import unbind_restores_parameters
from syncverify.judge.traced import Traced
from syncverify.judge.violation import Clues, Raised, Violation, finding
from syncverify.trace.run import Fault, FaultKind, Run

_TOO_EARLY = "hook_too_early"
_STALLS: Final[Collection[FaultKind]] = ("deadlock", "never_returns", "step_bound")


def _ends_in_any_program(traced: Traced) -> Iterator[Violation]:
    """No rank ends early, by an error or by an exit with a code."""
    return early_end(traced.run, {"raised", "process_died"})


@Property(
    in_any_program=_ends_in_any_program,
    order=10,
    condition="Every run.",
    example="an error on a legal program",
    needs_data=False,
    leads_to=("every_wait_completes",),
)
def every_rank_finishes(judgement: Judgement) -> Iterator[Violation]:
    """No rank ends early on a legal scenario.

    No call of the subject raises, and no process dies. Where a subject may refuse a
    feature of the scenario, it may raise an error that explains the refusal in words.

    Catches: errors on legal programs, crashes. Does not judge ranks that never end:
    `every_wait_completes` does.
    """
    fault = judgement.run.fault
    if fault is None or judgement.refused_step is None:
        for found in _fault(judgement, {"raised", "process_died"}):
            cause = refused_order(judgement, found.cause)
            if cause is not None:
                named = (*cause.lines, *found.evidence.named)
                evidence = replace(found.evidence, named=named)
                kind, summary = cause.kind, f"{found.summary}; {cause.text}"
                found = replace(found, cause=kind, summary=summary, evidence=evidence)
            yield found
    elif not fault.is_clear:
        summary = f"expected an error that names the mistake, but {fault.summary}"
        for found in _fault(judgement, {"raised"}):
            if found.cause != _TOO_EARLY:
                found = replace(found, cause="unclear_error", summary=summary)
            yield found


def _waits_in_any_program(traced: Traced) -> Iterable[Violation]:
    if any(groups_that_differ(traced.run)):
        return ()  # ranks that name one group in two ways do not meet
    return early_end(traced.run, _STALLS)


@Property(
    in_any_program=_waits_in_any_program,
    order=20,
    condition="Every run.",
    example="a rank that skips a collective; a wait that nothing ends",
    needs_data=False,
    leads_to=("each_bucket_reduced_once_per_step",),
)
def every_wait_completes(judgement: Judgement) -> Iterator[Violation]:
    """Every wait and every loop ends.

    No ranks wait for each other in a circle, no rank waits for one that has ended, and no
    rank computes, polls or communicates without an end.

    Catches: a rank that skips a collective, communicators waited for in different orders,
    a wait for work that is never done. Does not promise an end within a time: a slow rank
    that makes progress is fine.
    """
    for found in _fault(judgement, _STALLS):
        yield replace(found, clues=replace(found.clues, shows=skips(judgement)))


@Property(
    order=160,
    condition="A `zero_grad()` returned.",
    applies=lambda seen: seen.was_seen("zeroed"),
    example="a buffer that is not cleared",
    needs_data=False,
    leads_to=("accumulation_is_local_until_reduced",),
    # The next backward adds to the numbers that zero_grad() left. A sum that no rank sends, or
    # that is not in the memory of `.grad`, is a different mistake.
    never_gives=("not_reduced", "result_dropped", "view_lost"),
)
def zero_grad_clears(judgement: Judgement) -> Iterator[Violation]:
    """After `zero_grad()`, every gradient is None or all zeros.

    Catches: buffers that are not cleared, cleared on some ranks only, or cleared in
    memory that is not that of the gradients. Does not promise that clearing waits for work that
    still uses the buffer: `zero_grad_waits_for_reduce` does.
    """
    for rank, observation in judgement.seen("zeroed"):
        for name, gradient in observation.gradients.items():
            if gradient is not None and gradient.any():
                step = observation.step
                after = f"not zero after zero_grad() of step {step}"
                summary = f"gradient of {name!r} on rank {rank} is {after}"
                evidence = Evidence(rank=rank, step=step)
                yield finding("gradient_left", summary, rank, name, evidence)


def _fault(judgement: Judgement, kinds: Collection[FaultKind]) -> Iterator[Violation]:
    for found in early_end(judgement.run, kinds):
        fault, own = judgement.run.fault, found.clues.shows
        clues = Clues.of_finding(own, frozenset())
        if fault is not None and fault.kind == "raised":
            signs = after_earlier_steps(judgement.scenario, fault.step, fault.step)
            left_over = after_like_step(judgement.scenario, fault.step)
            clues = Clues.of_finding(own | left_over, own | signs)
        yield replace(found, clues=clues)


def early_end(run: Run, kinds: Collection[FaultKind]) -> Iterator[Violation]:
    """Find the ranks of a fault of some kinds, in the run of any program."""
    fault = run.fault
    if fault is None or fault.kind not in kinds or fault.is_of_hook_left:
        return
    cause = fault_identity(fault)[1]
    summary = fault.summary
    if cause == _TOO_EARLY:
        summary += ": this hook runs before autograd adds the gradient to `.grad`"
    place = frozenset({Raised(fault.identity, next(reversed(fault.details), None))})
    evidence = ended(fault)
    if fault.kind == "deadlock":
        evidence = replace(evidence, parting=parting(run))
    for rank in fault.ranks:
        yield finding(cause, summary, rank, None, evidence, shows=place)


def fault_identity(fault: Fault) -> tuple[str, str]:
    """Return the property and the cause of a fault of which no part was allowed."""
    if fault.is_of_hook_left:
        return unbind_restores_parameters.__name__, "hook_left"
    if fault.misused == "unset gradient":
        return every_rank_finishes.__name__, _TOO_EARLY
    ends = fault.kind in {"raised", "process_died"}
    violated = every_rank_finishes if ends else every_wait_completes
    cause = f"{fault.kind}_{fault.identity}" if fault.identity else fault.kind
    return violated.__name__, cause
