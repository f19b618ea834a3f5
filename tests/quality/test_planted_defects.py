"""The harness finds realistic defects, makes them small, and says what they are."""

import re

import pytest
from planted.bank import DEFECTS, LIVE, MATCH, ORDER, WAITS, Defect
from planted.stream_bank import STREAM_DEFECTS

from syncverify import verify
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entry_of
from syncverify.features import beyond
from syncverify.properties import check
from syncverify.replay import decode
from syncverify.report.report import ReportedViolation
from syncverify.report.text import violation_text
from syncverify.subject import resolve
from syncverify.verification import PropertyViolation

# What these properties find has no gradient to show.
ABOUT_LINES = {LIVE, WAITS, MATCH, ORDER}
# A search takes ten seconds: one of three is made each time, the others at night. Each
# defect of the bug bank is played where it is smallest each time, in a tenth of a second.
SEARCHED_ALWAYS = DEFECTS[::3]
every_defect = pytest.mark.parametrize(
    "defect",
    [
        pytest.param(
            defect,
            id=defect.subject.__name__,
            marks=() if defect in SEARCHED_ALWAYS else pytest.mark.nightly,
        )
        for defect in DEFECTS
    ],
)


@pytest.mark.slow
@every_defect
def test_planted_defect_is_found_and_explained(defect: Defect) -> None:
    with pytest.raises(PropertyViolation) as caught:
        verify(
            defect.subject,
            backend="sim",
            ranks=4,
            examples=defect.examples,
            seed=defect.seed,
        )
    reported = caught.value.report.violations
    names = {each.violation.property for each in reported}
    assert names == {defect.property, *defect.also}
    found = {each.violation.identity: each for each in reported}
    smallest = found[defect.property, defect.cause]
    assert_is_small(smallest, defect)
    assert_helps_a_tired_engineer(smallest, defect)
    assert violation_text(
        smallest, subject=defect.subject.__qualname__, backend="sim", title="VIOLATION"
    ).partition("\n")[2] in str(caught.value)
    assert_token_replays(smallest, defect)


def assert_is_small(smallest: ReportedViolation, defect: Defect) -> None:
    scenario = smallest.scenario
    assert scenario.mesh.shape == defect.mesh
    assert len(scenario.parameters) <= defect.num_parameters
    assert len(scenario.accumulations) <= len(defect.accumulations)
    assert sum(scenario.accumulations) <= sum(defect.accumulations)
    assert list(beyond(scenario)) == []


def assert_helps_a_tired_engineer(smallest: ReportedViolation, defect: Defect) -> None:
    text = violation_text(smallest, subject="Subject", backend="sim")
    assert text.startswith(f"VIOLATION: {defect.property} ({defect.cause})\n")
    assert smallest.violation.summary.startswith(defect.says)
    assert f"  {smallest.violation.summary}\n" in text
    assert re.search(r"^  seen on: +rank\(s\) \d", text, re.MULTILINE)
    assert re.search(r"^  hint: +\S", text, re.MULTILINE)
    assert f"replay {smallest.token} Subject --backend sim" in text
    if "expected" in smallest.violation.evidence:
        assert re.search(
            r"^  expected: +\[.+\]\n  observed: +\[.+\]$", text, re.MULTILINE
        )
    if smallest.violation.property in ABOUT_LINES:  # the subject's own line
        assert re.search(rf"(bases|{own_folder(defect)})/\w+\.py:\d+ in \w+", text)
    elif smallest.violation.parameters:
        assert "parameter(s) p" in text


def own_folder(defect: Defect) -> str:
    return str(defect.subject.__module__.split(".")[-2])


def assert_token_replays(smallest: ReportedViolation, defect: Defect) -> None:
    recording = decode(smallest.token)
    assert (recording.property, recording.cause) == (defect.property, defect.cause)
    assert recording.scenario == smallest.scenario
    subject = resolve(defect.subject)
    run = SimBackend().run(recording.scenario, subject)
    first, *_ = check(recording.scenario, run, subject.capabilities)
    assert first == smallest.violation


def test_bank_is_wide() -> None:
    """One defect a public report, none told twice."""
    named = [defect.entry_id for defect in (*DEFECTS, *STREAM_DEFECTS)]
    assert len({entry_of(each).source for each in named}) == len(named) >= 50
