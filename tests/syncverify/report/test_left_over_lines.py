"""Lines beside a violation: values left over, lines of the subject that ran here alone."""

from dataclasses import replace
from typing import Any

from syncverify.judge.evidence import Disagreement, Event, Evidence
from syncverify.judge.violation import Violation
from syncverify.report.report import Report
from syncverify.report.run import account_of, explanation_of
from syncverify.report.sarif import sarif_log
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import Fix, FoundViolation, LeftOut
from syncverify.search.plain_state import LeftOver, Part, ShownValue, shown_value
from syncverify.trace.source_lines import CodeLine, SourceLine

VALUES = (
    LeftOver((Part("attribute", ".count"), Part("key", "[p0]", is_any=True)), shown_value(0),
        shown_value(2), 1),
    LeftOver((Part("attribute", ".works"),), ShownValue("0 elements", 0),
        ShownValue("1 element", 1), 1),
    LeftOver((Part("attribute", ".cache"),), shown_value(None), ShownValue("3 elements", 3), 1),
)  # fmt: skip
ENTRY = FoundViolation(
    Violation(
        property="bucket_is_exclusive_while_reducing",
        cause="touched_in_flight",
        summary="nothing orders one before another",
        ranks=(1, 2),
        evidence=Evidence(rank=1),
    ),
    Scenario(MeshSpec((4,), ("dp",)), (ParameterSpec("p0", (2,), ("R",)),), (1, 1), 64),
    left_over=VALUES,
)
FIX = Fix(SourceLine("a.py", 1, "wait"), ("+ self.works.clear()",), 6, 4)
HINT = "reset the left-over values in wait() or zero_grad()"


RAN_HERE = (
    CodeLine(SourceLine("b.py", 7, "reduce"), "if late:"),
    CodeLine(SourceLine("b.py", 8, "reduce"), "buffer.div_(2)"),
)
ALONE = "ran only where it fails:"


def violation_json(entry: FoundViolation) -> dict[str, Any]:
    return explanation_of(entry, subject="mine:Sync", backend="sim").to_json()


def shown(entry: FoundViolation) -> str:
    return explanation_of(entry, subject="a:B", backend="sim").text()


def test_each_value_has_a_line_and_the_hint_tells_what_to_do() -> None:
    text = shown(ENTRY)
    assert (
        """
  left over:  self.count[p0] is 2 where step 1 begins, and was 0 where step 0 began
              self.works holds 1 element where step 1 begins, and held 0 where step 0 began
              self.cache holds 3 elements where step 1 begins, and was None where step 0 began
              (on rank 1; the violation disappears if they are reset at the start of each step)
"""
        in text
    )
    assert f"  hint:       {HINT}\n" in text
    alone = shown(replace(ENTRY, left_over=VALUES[:1]))
    assert "(on rank 1; the violation disappears if it is" in alone
    report = Report("a:B", "sim", 0, 1, 1.0, {}, (ENTRY,))
    (result,) = sarif_log(account_of(report))["runs"][0]["results"]
    assert f"hint: {HINT}\n" in result["message"]["text"]


def test_a_flag_may_be_meant_to_stay_and_gives_a_hint_only_if_the_fix_resets_it() -> (
    None
):
    flag = LeftOver(
        (Part("attribute", ".is_first"),), shown_value(True), shown_value(False), 1
    )
    of_flag = replace(ENTRY, left_over=(flag,))
    assert "self.is_first is False where step 1 begins" in shown(of_flag)
    assert HINT not in shown(of_flag)
    assert HINT in shown(replace(of_flag, fix=replace(FIX, sets_back=True)))


def test_json_has_what_the_text_has() -> None:
    left = LeftOut(RAN_HERE[0], "in step 0 it led to no collective")
    data = violation_json(replace(ENTRY, fix=FIX, left_out=(left,), deciders=RAN_HERE))
    assert data["fix"].keys() == {"place", "lines", "num_others", "max_ranks"}
    assert data["left_over"][:2] == [
        {"path": "self.count[p0]", "before": "0", "after": "2", "step": 1},
        {"path": "self.works", "before": "0 elements", "after": "1 element", "step": 1},
    ]
    assert data["missing_at"] == [str(left)]
    assert data["ran_only_here"] == [*map(str, RAN_HERE)]
    assert f"\n  missing at: {left}\n" in shown(
        replace(ENTRY, fix=FIX, left_out=(left,))
    )


def test_lines_that_ran_here_alone_are_named_once_and_not_beside_a_fix() -> None:
    plain = replace(ENTRY, left_over=(), deciders=RAN_HERE)
    lines = (
        f"  {ALONE}\n              b.py:7 in reduce: if late:\n"
        "              b.py:8 in reduce: buffer.div_(2)\n"
    )
    assert lines in shown(plain)
    event = Event("all_reduce SUM, at b.py:7 in reduce (step 0, wait)")
    again = replace(ENTRY.violation, evidence=Disagreement(events=(event,)))
    assert f"  {ALONE}\n              b.py:8 in " in shown(
        replace(plain, violation=again)
    )
    assert ALONE not in shown(replace(plain, violation=again, deciders=RAN_HERE[:1]))
    fixed = shown(replace(plain, fix=FIX))
    assert ALONE not in fixed
    assert FIX.lines[0] in fixed
