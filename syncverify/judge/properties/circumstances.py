"""Circumstances of a wrong gradient that point to a mistake elsewhere in the run.

Note [When it is wrong]
    A step that is wrong after equal steps that were right tells of state that was not reset.
    One that is wrong after `unbind()` and `bind()` alone tells of state that was left behind.
    What was launched inside of a tensor hook lacks the gradient that the hook is called with.
    And where ranks may have put different gradients into one bucket, no value tells a cause.
    A wrong step that is like a right one shows itself that state was left over: whatever else
    is seen after right steps alone is likely of that state.
    Each circumstance is a sign: a violation that shows it explains the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from syncverify.judge.evidence import WrongGradient
from syncverify.judge.properties.contents import Contents
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.signs import Circumstance, Clues, Sign, Signs
from syncverify.judge.traced import launches_of
from syncverify.judge.violation import Violation
from syncverify.scenario import step_plan
from syncverify.scenario.feature_table import EVENTS, PLAIN
from syncverify.scenario.scenario import Scenario


def with_circumstances(
    judgement: Judgement, findings: Iterable[Violation]
) -> Iterator[Violation]:
    """Add the circumstances of each finding, whose evidence has its step, to its signs.

    Where the trace proves a cause, other contents of a bucket are none.
    """
    found, known = list(findings), dict[int, Signs]()
    contents = dict[int, Contents]()
    steps = [each.evidence.step or 0 for each in found]
    for finding, step in zip(found, steps, strict=True):
        if step not in known:
            known[step] = _circumstances(judgement, step, min(steps))
            contents[step] = Contents(judgement, step)
        meeting = ""
        if finding.parameter is not None and finding.rank is not None:
            meeting = contents[step].meeting(finding.parameter, finding.rank)
        evidence, signs = finding.evidence, set[Sign](known[step])
        if meeting and isinstance(evidence, WrongGradient):
            yield _mixed_up(finding, evidence, meeting, known[step])
            continue
        if contents[step].may_differ and isinstance(evidence, WrongGradient):
            # The result may be that of other gradients.
            if finding.cause == "result_dropped":
                evidence = replace(evidence, is_proven=False)
            if not evidence.is_proven:
                signs.add(Circumstance.OTHER_CONTENTS)
        signs.update(*finding.clues.explained_by)
        clues = Clues.of_finding(finding.clues.shows, frozenset(signs))
        yield replace(finding, evidence=evidence, clues=clues)


def _mixed_up(
    finding: Violation, evidence: WrongGradient, meeting: str, signs: Signs
) -> Violation:
    """Return the finding of a gradient that met another one in a collective."""
    rank, step = evidence.rank, evidence.step
    return replace(
        finding,
        cause="bucket_mismatch",
        summary=f"gradient of {finding.parameter!r} on rank {rank}, step {step} is wrong: "
        f"{meeting}",
        evidence=replace(evidence, explanation=meeting, is_proven=True, readings=()),
        clues=Clues.of_finding(
            finding.clues.shows, signs | {Circumstance.OTHER_CONTENTS}
        ),
    )


def _circumstances(judgement: Judgement, step: int, first_wrong: int) -> Signs:
    """Return the signs of a finding in a step.

    Args:
        judgement: The run.
        step: Step of the finding.
        first_wrong: First step of the run with a finding of the same property.
    """
    signs = set[Sign](after_earlier_steps(judgement.scenario, step, first_wrong))
    for rank_run in judgement.run.ranks:
        for launch in launches_of(rank_run.trace):
            if launch.in_tensor_hook and launch.moment.step == step:
                signs.add(Circumstance.IN_TENSOR_HOOK)
    return frozenset(signs)


def after_earlier_steps(scenario: Scenario, step: int, first_wrong: int) -> Signs:
    """Return the signs of a finding that tell of the steps before it."""
    if not step or first_wrong == 0:
        return frozenset()
    if any(EVENTS[scenario.step_event(before)].rebinds for before in range(step)):
        return frozenset({Circumstance.AFTER_REBINDING, Circumstance.AFTER_RIGHT_STEP})
    return frozenset({Circumstance.AFTER_RIGHT_STEP})


def after_like_step(scenario: Scenario, step: int) -> Signs:
    """Return the sign that a step is unlike an earlier one for no reason of the scenario.

    Only for a step that is wrong where the earlier ones, whose program is the same, are right.
    """
    alike = any(is_like(scenario, step, earlier) for earlier in range(step))
    return frozenset({Circumstance.AFTER_RIGHT_STEP}) if alike else frozenset()


def is_like(scenario: Scenario, step: int, earlier: int) -> bool:
    """Tell whether two steps are alike, and no step up to the later one has an event."""
    counts = [
        step_plan.num_agreed_micro_batches(scenario, at) for at in (step, earlier)
    ]
    events = {scenario.step_event(at) for at in range(step + 1)}
    uses = {spec.used for spec in scenario.parameters}
    return counts[0] == counts[1] and events == {PLAIN} and uses == {"always"}
