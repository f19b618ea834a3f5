"""The line to which a violation points, and SARIF, which names it."""

import inspect
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from syncverify import PropertyViolation, verify
from syncverify.report import sarif
from syncverify.report.annotations import FileLine, guilty_line
from syncverify.report.report import Report
from syncverify.report.run import account_of
from syncverify.report.sarif import sarif_log
from syncverify.subjects.replicate import ReplicateSubject
from syncverify.trace.source_lines import SourceLine

HERE = Path(__file__)


class Raises:
    def __init__(self, *arguments: object) -> None: ...
    def bind(self) -> None:
        raise ValueError("never binds")

    def wait(self) -> None: ...
    def zero_grad(self) -> None: ...
    def unbind(self) -> None: ...


def lines(path: str, number: int) -> list[SourceLine]:
    return [SourceLine(path, number, "wait")]


def test_place_in_the_evidence_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE.parents[1])
    line = guilty_line(lines("report/test_guilty_line.py", 7), "ddp")
    assert line == FileLine(HERE, 7)


def test_a_path_may_have_signs_that_end_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = "a (b's;,c"
    file = tmp_path / folder / "p q.py"
    module = ModuleType("with_signs")
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "with_signs", module)
    line = guilty_line(lines(f"{folder}/p q.py", 6), "absent:Subject")
    assert line == FileLine(file, 6)


@pytest.mark.parametrize(
    "name", [f"{__name__}:Raises", "report/test_guilty_line.py:Raises"]
)
def test_definition_counts_before_lines_of_others(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(HERE.parent)
    first = inspect.getsourcelines(Raises)[1]
    assert guilty_line(lines("inspect.py", 5), name) == FileLine(HERE, first)


@pytest.mark.long
def test_line_of_others_counts_where_there_is_no_better_one() -> None:
    file = Path(inspect.__file__).resolve()
    assert guilty_line(lines("inspect.py", 5), "absent:Subject") == FileLine(file, 5)
    assert guilty_line(lines("absent.py", 5), "absent:Subject") is None


@pytest.mark.parametrize("name", ["replicate", "replicate:bucket_cap_mb=1"])
def test_definition_of_a_built_in_subject_counts(name: str) -> None:
    line = guilty_line(lines("absent.py", 5), name)
    assert line == FileLine(
        Path(inspect.getfile(ReplicateSubject)),
        inspect.getsourcelines(ReplicateSubject)[1],
    )


@pytest.fixture(scope="module")
def report() -> Report:
    with pytest.raises(PropertyViolation) as raised:
        verify(Raises, ranks=1, examples=1, seed=0)
    return raised.value.report


@pytest.mark.long
def test_sarif_has_a_rule_and_a_result_at_the_line(
    report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE.parent)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    log = sarif_log(account_of(report))
    (run,), (entry,) = log["runs"], report.violations
    (rule,), (result,) = run["tool"]["driver"]["rules"], run["results"]
    assert (log["version"], rule["id"]) == ("2.1.0", "every_rank_finishes")
    assert (result["ruleId"], result["ruleIndex"]) == ("every_rank_finishes", 0)
    assert result["message"]["text"].startswith(entry.violation.summary)
    assert f"replay {entry.token} " in result["message"]["text"]
    assert result["locations"] == [
        {
            "physicalLocation": {
                "artifactLocation": {
                    "uri": "tests/syncverify/report/test_guilty_line.py"
                },
                "region": {"startLine": inspect.getsourcelines(Raises.bind)[1] + 1},
            }
        }
    ]


@pytest.mark.long
def test_sarif_names_a_violation_by_subject_property_and_cause(
    report: Report, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def result(report: Report) -> dict[str, Any]:
        return sarif_log(account_of(report))["runs"][0]["results"][0]  # type: ignore[no-any-return]

    monkeypatch.chdir(tmp_path)  # the file is elsewhere, and named in full
    place = result(report)["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == HERE.as_uri()
    here = result(report)["partialFingerprints"]
    assert re.fullmatch(r"[0-9a-f]{16}:1", here["primaryLocationLineHash"])
    monkeypatch.setattr(sarif, "guilty_line", lambda *_: FileLine(HERE, 1))
    assert result(report)["partialFingerprints"] == here  # the line has moved
    other = result(replace(report, subject="ddp"))
    assert other["partialFingerprints"] != here
