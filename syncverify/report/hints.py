"""Hints: the repair to try first, by cause."""

from syncverify.judge.causes import ADVICE, CAUSES, VAGUE_CAUSES, VALUE_CAUSES
from syncverify.judge.evidence import Ended, Evidence, WrongGradient
from syncverify.judge.properties.copied_buckets import UNPACKED_OTHERWISE
from syncverify.judge.violation import is_exception
from syncverify.search.found_violation import FoundViolation


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
    if cause == UNPACKED_OTHERWISE and isinstance(evidence, Ended):
        return "likely: the error names the sizes of two gradients"
    if cause in VALUE_CAUSES and not evidence.is_proven:
        return "likely: no other known mistake gives this value"
    return "certain: the run shows it"


def hint(cause: str, evidence: Evidence) -> str:
    """Return the repair of a violation to try first."""
    reduction = evidence.reduction if isinstance(evidence, WrongGradient) else "sum"
    parting = evidence.parting
    if parting and parting.crossed:
        return hint_of("deadlock_hazard")
    words = hint_of(cause, reduction)
    # Two lines are rather those of ranks that take them in different orders.
    if parting and len([each for each in parting.unequal if min(each.times)]) == 1:
        return words + ADVICE["loops"]
    if not (is_exception(cause) and isinstance(evidence, Ended)):
        return words
    # A list that bind() uses in a wrong way is likely a group.
    if evidence.is_of_list and evidence.phase == "bind":
        words += ADVICE["groups"].format(argument=evidence.groups or "param_groups")
    return words


def advice(entry: FoundViolation) -> str:
    """Return the hint of a violation with what was found beside it: a value that is left over.

    A flag may be meant to stay: such a value is a fact of the report, and no hint. A bucket that
    nobody launches may wait for the gradient of a frozen parameter.
    """
    is_set_back = all(each.is_number for each in entry.left_over)
    is_rounded_down = any(each.rounds_down for each in entry.left_out)
    if entry.fix is not None:
        is_grown = all(each.is_grown for each in entry.left_over)
        is_set_back = entry.fix.sets_back or is_grown
        is_rounded_down = entry.fix.rounds_up
    if entry.left_over and is_set_back:
        return ADVICE["left_over"]
    if is_rounded_down:
        return ADVICE["rounded_down"]
    violation, listed = entry.violation, entry.scenario.parameters
    words = hint(violation.cause, violation.evidence)
    named = [spec for spec in listed if spec.name in violation.parameters]
    groups = {spec.group for spec in named or listed}
    frozen = (spec.group in groups for spec in listed if not spec.requires_grad)
    if violation.cause == "not_reduced" and any(frozen):
        words += ADVICE["frozen"]
    if not entry.starts_wrongly:
        return words
    # How the step differs from the right one before.
    step = violation.evidence.step or 0
    before, count = entry.scenario.accumulations[step - 1 : step + 1]
    if before == count:
        return words + ADVICE["after_right_step"]
    other = ADVICE["other_count"].format(step=step, count=count, before=before)
    return words + other


def hint_of(cause: str, reduction: str = "sum") -> str:
    """Return the repair of a cause under a contract; `raised_` with a type is one, too."""
    row = CAUSES["raised" if is_exception(cause) else cause]
    return row.cases.get(f"of_{reduction}s", row).hint
