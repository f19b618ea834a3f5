"""Explanations have several readings, remedies that a line can hold, and lines with their code."""

import re
from dataclasses import replace
from pathlib import Path

from syncverify.report.evidence import remedy_of
from syncverify.report.hints import certainty
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.search.shrinking import rank_of
from syncverify.trace.source_lines import with_code
from tests.programs import violations
from tests.quality.planted.explanations import (
    ONE,
    TWO,
    Doubles,
    LaunchesAtOnce,
    RaisesAnId,
)
from tests.quality.planted.planted import training


def on_ranks(count: int) -> Scenario:
    return replace(TWO, mesh=MeshSpec((count,), ("dp",)))


def test_a_doubled_gradient_of_two_ranks_has_several_readings() -> None:
    (found,) = violations(Doubles, ONE)
    readings = " ".join([found.summary, *found.evidence.readings])
    assert "counted twice" in readings
    assert "one of several" in certainty(found.cause, found.evidence)


def test_a_report_has_no_id_of_an_object() -> None:
    summaries = "\n".join(each.summary for each in violations(RaisesAnId, ONE))
    assert "KeyError" in summaries
    assert not re.search(r"\d{9,}|0x[0-9a-f]{6,}", summaries)


def test_no_wait_is_proposed_before_the_backward_that_launches() -> None:
    found = violations(LaunchesAtOnce, TWO)
    remedies = [remedy_of(each) for each in found if each.evidence.unordered]
    assert remedies
    assert "run_micro_batch" not in " ".join(remedies)


def test_a_race_of_one_rank_tells_less_than_one_of_two() -> None:
    found = {
        ranks: next(
            FoundViolation(each, on_ranks(ranks))
            for each in violations(LaunchesAtOnce, on_ranks(ranks))
            if each.evidence.unordered
        )
        for ranks in (2, 3)
    }
    alone = replace(found[2], scenario=training(shape=(3,), ranks=1))
    assert [rank_of(each)[0] for each in (alone, *found.values())] == [
        True,
        False,
        False,
    ]


def test_the_lines_that_led_to_an_event_are_reported_with_their_code() -> None:
    (unordered, *_) = (
        each for each in violations(LaunchesAtOnce, TWO) if each.evidence.unordered
    )
    code = with_code(unordered.evidence.lines)
    assert any(each.code.endswith("self.launch(bucket)") for each in code)
    assert all(Path(each.line.file).is_file() for each in code)
