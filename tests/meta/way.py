"""The way of a scenario, from `verify()` to the printed report: the functions and files on it.

A function is on the way if it takes or returns a form of a scenario: the scenario itself, its
run, a judgement, a violation, a result, a report, or a collection of these. The functions of
`syncverify/` that have a name are counted, by file and first line, in the calling thread, from
the call of `verify()` until the text and the JSON of the report are made.

Left out are the subject that is verified, and what adapts it. Ranks play in threads or processes
of their own, so what they run is not counted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Final

import syncverify
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.properties.registry import Verdict
from syncverify.judge.violation import Violation
from syncverify.report.report import Report
from syncverify.report.text import diagnosis
from syncverify.scenario.scenario import Scenario
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import JudgedRun
from syncverify.search.occurrences import Occurrences
from syncverify.search.replayed import Replayed
from syncverify.search.result import SearchResult
from syncverify.trace.run import Run
from syncverify.verification.verify import PropertyViolation, verify

Step = tuple[str, int]  # a file below `syncverify/`, and the first line of a function
Steps = dict[Step, str]  # each with the name of the function

_ROOT: Final = Path(syncverify.__file__).parent
_FORMS: Final = frozenset(
    {
        FoundViolation,
        JudgedRun,
        Judgement,
        Occurrences,
        Replayed,
        Report,
        Run,
        Scenario,
        SearchResult,
        Verdict,
        Violation,
    }
)
_NO_STEPS: Final = ("adapters", "bugbank/", "subjects/", "synchronizer/")


def way_of(subject: str) -> Steps:
    """Verify a subject that violates a property; return the functions on the way."""
    steps: Steps = {}

    def note(frame: FrameType, event: str, result: object) -> None:
        code = frame.f_code
        if event in {"call", "return"} and not code.co_name.startswith("<"):
            file = _file_of(code.co_filename)
            taken = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            given = [frame.f_locals.get(name) for name in taken]
            if file and any(map(_has_form, given if event == "call" else [result])):
                steps.setdefault((file, code.co_firstlineno), code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        verify(subject, examples=6, ranks=2, seed=0)
    except PropertyViolation as error:
        diagnosis(error.report)
        error.report.to_json()
    finally:
        sys.setprofile(before)
    return steps


def _file_of(path: str) -> str | None:
    """Return the path of a file below `syncverify/`; None for one that has no step."""
    if not path.startswith(f"{_ROOT}/"):
        return None
    file = path.removeprefix(f"{_ROOT}/")
    return None if file.startswith(_NO_STEPS) else file


def _has_form(value: object) -> bool:
    """Tell whether a value, or one of the first three of a collection, is a form of a scenario."""
    match value:
        case dict():
            several = [*value.values()][:3]
        case list() | tuple() | set() | frozenset():
            several = [*value][:3]
        case _:
            several = []
    return any(type(each) in _FORMS for each in (value, *several))
