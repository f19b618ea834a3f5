"""The model of the page, made from runs of subjects with known defects."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from syncverify.judge.violation import Violation
from syncverify.playing.sim import SimBackend
from syncverify.report.html.page import contract_table, drawn, program_words
from syncverify.report.observed import ObservedFeature
from syncverify.report.report import Report
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import EVENTS
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.search.replayed import shown_again
from syncverify.subjects.subject import resolve

SCENARIO = Scenario(
    MeshSpec((2,), ("dp",)),
    (ParameterSpec("p", (2,), ("R",)), ParameterSpec("q", (), ("R",))),
    (2,),
    2**20,
)
RACE = (
    "syncverify.subjects.bugbank.ordering.streams:NeverForks",
    "reduce_reads_after_accumulation",
    "reduced_before_accumulated",
)
TOO_OFTEN = "examples.reduces_too_often:ReducesTooOften"


@cache
def model(subject_name: str, name: str, cause: str) -> Any:
    subject, backend = resolve(subject_name), SimBackend()
    violation = Violation(name, cause, "", (0, 1), ("p",))
    entry = FoundViolation(violation, SCENARIO)
    report = Report(subject_name, "sim", 0, 1, 0.0, {}, (entry,), is_replay=True)
    run = shown_again(entry, subject, backend)
    assert run is not None
    return drawn(report, subject.capabilities, [run])


@pytest.mark.slow
def test_race_names_both_events_and_its_remedy() -> None:
    timeline = model(*RACE)["violations"][0]["timeline"]
    race = timeline["race"]
    first, second = (timeline["events"][race[key]] for key in ("first", "second"))
    assert (first["kind"], second["kind"]) == ("accumulate", "collective")
    assert first["told"]
    assert second["told"]
    assert race["remedy"].startswith("insert `stream 1.wait_stream(default)`")


@pytest.mark.slow
def test_gradients_stand_beside_the_right_ones() -> None:
    violation = ("gradient_equals_reference", "contribution_doubled")
    made = model(TOO_OFTEN, *violation)["violations"][0]
    wrong = [row for row in made["gradients"] if row["wrong"]]
    assert {(row["parameter"], row["rank"]) for row in wrong} == {
        ("p", 0),
        ("p", 1),
        ("q", 0),
        ("q", 1),
    }
    assert all(row["expected"] != row["observed"] and row["why"] for row in wrong)
    assert made["timeline"]["race"] is None


def test_violation_that_ends_the_process_is_not_played() -> None:
    entry = FoundViolation(
        Violation("every_rank_finishes", "process_died", ""), SCENARIO
    )
    assert shown_again(entry, resolve(TOO_OFTEN), SimBackend()) is None


@pytest.mark.parametrize("event", [*EVENTS][1:])
def test_each_event_has_words_for_its_actions(event: str) -> None:
    scenario = replace(SCENARIO, accumulations=(2, 2), events=(event, "plain"))
    parts = program_words(scenario)
    assert [each["title"] for each in parts[1:-1]] == ["step 0", "step 1"]
    assert all(part["actions"] for part in parts)


def test_contract_has_the_promise_and_the_word_of_each_feature() -> None:
    beyond = (ObservedFeature("event=tail", "wrong", {"wrong": 2}, summary="lost"),)
    coverage = {"dtype": {"float32": 4}}
    report = Report("s", "sim", 0, 4, 0.0, coverage, (), beyond=beyond)
    asked = Capabilities(
        features=frozenset({"used=never"}), outside=frozenset({"dtype=float16"})
    )
    seen = {
        f"{row['topic']}={each['value']}": (each["promise"], each["scenarios"])
        for row in contract_table(report, asked)
        for each in row["features"]
    }
    assert seen["dtype=float32"] == ("right", 4)
    assert seen["dtype=float16"] == ("left out", 0)
    assert seen["used=never"] == ("right, or a clear error", 0)
    assert seen["event=tail"] == ("beyond the contract", 2)
