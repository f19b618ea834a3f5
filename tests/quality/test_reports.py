"""The bank's defects are shown by name, place and remedy, in scenarios to be read at a glance."""

import linecache
import re
from pathlib import Path

import pytest
from hypothesis import settings

from studies.bank_rows import caught
from syncverify import verify
from syncverify.judge.evidence import WrongGradient
from syncverify.judge.properties import check
from syncverify.playing.fake import FakeBackend
from syncverify.playing.sim import SimBackend
from syncverify.report.evidence import remedy_of
from syncverify.report.run import explanation_of
from syncverify.scenario.replay_token import decode
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.search.found_violation import FoundViolation
from syncverify.subjects.bugbank.bases.main_grads import AveragedMainGrads, MainGrads
from syncverify.subjects.bugbank.bases.view_buckets import (
    AveragedViewBuckets,
    ViewBuckets,
)
from syncverify.subjects.bugbank.catalogue import entries, entry_of
from syncverify.subjects.bugbank.entry import Entry
from tests.programs import violations
from tests.quality.planted.lifecycle_words import ForksFromLastGradient
from tests.quality.planted.planted import LIVE, MATCH, ORDER, WAITS, training
from tests.quality.planted.reports import REPORTS, Report

CAUGHT = caught()
# Violations of these properties have no gradient to show.
ABOUT_LINES = {LIVE, WAITS, MATCH, ORDER}
MOST = {"ranks": 2, "parameters": 2, "steps": 2}
# What takes more ranks or parameters than two, and the reason.
TWO_AXES = "two axes of two ranks each are the least mesh on which axes can be confused"
LARGER = {
    "dp-group-ignores-sequence-parallel": TWO_AXES,
    "expert-divisor-wrong-mesh": TWO_AXES,
    "reduce-dtype-skips-second-leg": TWO_AXES,
    "event-after-first-leg": TWO_AXES,
    "cross-group-collective-order": TWO_AXES,
    "polls-for-absent-rank": "an axis beside that of the rank that is absent",
    "premul-bf16-factor-width": "half of the bits of 1/2 say 1/2",
    "scale-once-per-stage": "with two stages the factor may be a divisor of the mesh",
    "pingpong-buffer-reused-early": "two staging buffers, and the first one's second turn",
    "size-mismatch-does-not-hang": "an uneven shard beside two replicated parameters",
}
PLAIN = (ViewBuckets, MainGrads, AveragedMainGrads, AveragedViewBuckets)
OF_RACES = ("ordering", "memory", "cross-rank")
TWINS = {e.shared_scenarios: e for e in entries() if e.family in OF_RACES}.values()
every_report = pytest.mark.parametrize("report", REPORTS, ids=lambda each: each.name)


def with_code(text: str) -> str:
    """Put the line of code where a report names its place."""

    def code(place: re.Match[str]) -> str:
        return f"[{linecache.getline(str(Path(place[1]).absolute()), int(place[2])).strip()}]"

    return re.sub(r"(\S+\.py):(\d+)", code, text)


@pytest.mark.slow
@every_report
def test_report_helps_a_tired_engineer(report: Report) -> None:
    subject, token = entry_of(report.name).defect(), CAUGHT[report.name].token
    found, identity = decode(token), report.identity
    scenario, schedule = report.scenario or found.scenario, found.schedule
    identity = report.identity or (found.property, found.cause)
    if report.scenario:
        schedule = DEFAULT_SCHEDULE
    run = SimBackend().run(scenario, subject, schedule)
    shown = {each.identity: each for each in check(scenario, run, subject.capabilities)}
    assert {each.property for each in shown.values()} == {identity[0], *report.also}
    reported = FoundViolation(shown[identity], scenario)
    text = explanation_of(reported, subject="Subject", backend="sim").text()
    assert report.says in with_code(text)
    assert_is_whole(text, reported)


def assert_is_whole(text: str, reported: FoundViolation) -> None:
    violation = reported.violation
    assert text.startswith("VIOLATION: {} ({})\n".format(*violation.identity))
    assert f"  {violation.summary}\n" in text
    assert re.search(r"^  seen on: +ranks? \d", text, re.MULTILINE)
    assert re.search(r"^  hint: +\S", text, re.MULTILINE)
    assert f"replay {reported.token} Subject" in text
    if isinstance(violation.evidence, WrongGradient):
        values = r"^  expected: +\[.+\]\n  observed: +\[.+\]$"
        assert re.search(values, text, re.MULTILINE)
    if violation.property in ABOUT_LINES:  # the subject's own line
        assert re.search(r"bugbank/\S+\.py:\d+ in \w+", text)
    elif violation.parameters:
        assert "; parameter" in text
    if remedy := remedy_of(violation):
        line = rf"^  remedy: +{re.escape(remedy)}$"
        assert re.search(line, text, re.MULTILINE)
        for stream in {*re.findall(r"stream \d", remedy)}:
            made = rf"^ +{stream} is made at \[.*torch.cuda.Stream\(.*\] in \w+$"
            assert re.search(made, with_code(text), re.MULTILINE)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_smallest_scenario_is_small(entry: Entry) -> None:
    size = CAUGHT[entry.name]
    is_small = all(getattr(size, noun) <= most for noun, most in MOST.items())
    assert is_small == (entry.name not in LARGER)
    assert size.ranks + size.parameters + size.steps <= 6


@pytest.mark.slow
@pytest.mark.parametrize(
    "report", [r for r in REPORTS if r.without_data], ids=lambda each: each.name
)
def test_defect_is_named_where_no_data_moves(report: Report) -> None:
    entry, fake = entry_of(report.name), FakeBackend()
    assert report.scenario is not None
    first, *_ = violations(entry.defect(), report.scenario, fake)
    assert first.identity == report.without_data
    assert violations(entry.fixed(), report.scenario, fake) == []


@pytest.mark.slow
def test_a_stream_of_the_training_program_is_distinguished() -> None:
    scenario = training(2, cap_bytes=1024, launch="parameter_streams")
    (found,) = violations(ForksFromLastGradient, scenario)
    theirs, ours = found.evidence.streams
    assert re.fullmatch(r"stream \d is made by the training program", theirs)
    assert re.fullmatch(r"stream \d is made at \S+\.py:\d+ in bind", ours)


def num_scenarios(usual: int) -> int:
    """Return the number that a day plays, or by night that of the profile."""
    nightly = settings().max_examples
    return nightly if nightly >= 1000 else usual


@pytest.mark.long
@pytest.mark.parametrize("twin", TWINS, ids=lambda entry: entry.twin.__name__)
def test_twin_of_a_defect_has_no_violation(twin: Entry) -> None:
    examples = num_scenarios(6)
    report = verify(twin.fixed().factory, ranks=4, examples=examples, seed=0)
    assert (report.violations, report.examples) == ((), examples)


@pytest.mark.long
@pytest.mark.parametrize("right", PLAIN)
def test_right_base_has_no_violation_on_real_processes(right: type) -> None:
    report = verify(right, backend="gloo", ranks=3, examples=10, seed=0)
    assert (report.violations, report.examples) == ((), 10)
