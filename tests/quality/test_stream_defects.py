"""Missing waits and early frees are named, with the line that lacks something."""

import linecache
import re
from pathlib import Path

import pytest

from syncverify.report.evidence import remedy_of
from syncverify.report.text import violation_text
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from tests.programs import violations
from tests.quality.planted.lifecycle_words import ForksFromLastGradient
from tests.quality.planted.stream_bank import STREAM_DEFECTS, StreamDefect

every_defect = pytest.mark.parametrize(
    "defect", STREAM_DEFECTS, ids=[d.subject.__name__ for d in STREAM_DEFECTS]
)


def with_code(text: str) -> str:
    """Put the line of code where a report names its place."""

    def code(place: re.Match[str]) -> str:
        return f"[{linecache.getline(str(Path(place[1]).absolute()), int(place[2])).strip()}]"

    return re.sub(r"(\S+\.py):(\d+)", code, text)


@pytest.mark.slow
@every_defect
def test_defect_is_found_and_its_remedy_holds(defect: StreamDefect) -> None:
    found = violations(defect.subject, defect.scenario)
    assert {each.property for each in found} == {defect.property, *defect.also}
    (violation,) = (each for each in found if each.property == defect.property)
    assert violation.cause == defect.cause
    text = violation_text(
        FoundViolation(violation, defect.scenario), subject="Subject", backend="sim"
    )
    assert re.search(r"^  hint: +\S", text, re.MULTILINE)
    assert defect.says in with_code(text)
    remedy = remedy_of(violation) or None
    assert remedy is None or re.search(
        rf"^  remedy: +{re.escape(remedy)}$", text, re.MULTILINE
    )
    for stream in {*re.findall(r"stream \d", remedy or "")}:
        line = rf"^ +{stream} is made at \[.*torch.cuda.Stream\(.*\] in \w+$"
        assert re.search(line, with_code(text), re.MULTILINE)


@pytest.mark.slow
def test_a_stream_of_the_training_program_is_distinguished() -> None:
    parameters = tuple(ParameterSpec(f"p{n}", (4,), ("R",)) for n in range(2))
    scenario = Scenario(
        MeshSpec((2,), ("dp",)), parameters, (1,), 1024, launch="parameter_streams"
    )
    (found,) = violations(ForksFromLastGradient, scenario)
    theirs, ours = found.evidence.streams
    assert re.fullmatch(r"stream \d is made by the training program", theirs)
    assert re.fullmatch(r"stream \d is made at \S+\.py:\d+ in bind", ours)


@every_defect
def test_its_twin_is_right(defect: StreamDefect) -> None:
    assert violations(defect.twin, defect.scenario) == []
