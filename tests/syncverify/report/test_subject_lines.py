"""Lines of a subject beside a violation: where something is missing, what ran here alone."""

from dataclasses import replace

from syncverify.judge.evidence import Disagreement, Event
from syncverify.judge.violation import Violation
from syncverify.report.report import violation_json
from syncverify.report.text import violation_text
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation, LeftOut
from syncverify.trace.source_lines import CodeLine, SourceLine
from syncverify.witness.fix import Fix

VIOLATION = Violation(
    property="gradient_equals_reference",
    cause="scaled",
    summary="gradient of 'p0' on rank 0, step 0 is wrong: it is twice the right gradient",
)
ENTRY = FoundViolation(
    VIOLATION,
    Scenario(MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (2,), ("R",)),), (1,), 8),
)
RAN_HERE = (
    CodeLine(SourceLine("a.py", 7, "reduce"), "if late:"),
    CodeLine(SourceLine("a.py", 8, "reduce"), "buffer.div_(2)"),
)


def test_lines_that_ran_here_alone_are_a_fact_and_no_verdict() -> None:
    text = violation_text(
        replace(ENTRY, deciders=RAN_HERE), subject="ddp", backend="sim"
    )
    assert (
        """
  ran only where it fails:
              a.py:7 in reduce: if late:
              a.py:8 in reduce: buffer.div_(2)
  seen on: """
        in text
    )


def test_lines_that_stand_above_are_not_reported_once_more() -> None:
    event = Event("all_reduce SUM, at a.py:7 in reduce (step 0, wait)")
    again = replace(VIOLATION, evidence=Disagreement(events=(event,)))
    entry = replace(ENTRY, violation=again, deciders=RAN_HERE)
    text = violation_text(entry, subject="ddp", backend="sim")
    assert "  ran only where it fails:\n              a.py:8 in reduce: " in text
    all_of_them = replace(entry, deciders=RAN_HERE[:1])
    text = violation_text(all_of_them, subject="ddp", backend="sim")
    assert "ran only where it fails" not in text


def test_where_a_fix_is_known_no_line_is_blamed_besides() -> None:
    fix = Fix(
        SourceLine("a.py", 7, ""), ("- late", "+ early"), num_others=3, max_ranks=4
    )
    entry = replace(ENTRY, deciders=RAN_HERE, fix=fix)
    text = violation_text(entry, subject="ddp", backend="sim")
    assert "ran only where it fails" not in text
    assert "- late" in text


def test_places_of_what_is_missing_are_reported_beside_a_fix_too() -> None:
    fix = Fix(
        SourceLine("a.py", 9, ""), ("- late", "+ early"), num_others=3, max_ranks=4
    )
    left = (LeftOut(RAN_HERE[0], "in step 0 it led to no collective"),)
    text = violation_text(
        replace(ENTRY, left_out=left, fix=fix), subject="ddp", backend="sim"
    )
    assert f"\n  missing at: {left[0]}\n" in text
    data = violation_json(replace(ENTRY, left_out=left, deciders=RAN_HERE))
    assert (data["missing_at"], data["ran_only_here"]) == (
        [str(left[0])],
        [*map(str, RAN_HERE)],
    )
