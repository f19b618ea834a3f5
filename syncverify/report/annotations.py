"""The violations of a report in a few lines each, for places that show them beside the code.

A workflow command of GitHub is one line, `::error file=...,line=...,title=...::message`. GitHub
reads `%0A` as a newline, and counts paths from the root of the checkout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from syncverify.judge.violation import Violation
from syncverify.replay_line import replay_line
from syncverify.report.console import say
from syncverify.report.guilty_line import (
    FileLine,
    guilty_line,
    path_in_checkout,
    place_in_checkout,
)
from syncverify.report.hints import advice
from syncverify.report.observed import with_rating
from syncverify.report.report import Report
from syncverify.search.found_violation import FoundViolation


@dataclass(frozen=True, slots=True)
class Annotation:
    """A violation, or another thing that fails a run, beside a line of code."""

    title: str  # `property (cause)`, or a wrong feature
    text: str  # the facts, in one or several lines
    place: FileLine | None = None


def workflow_commands(annotations: Iterable[Annotation]) -> Iterator[str]:
    """Yield a workflow command of GitHub for each annotation."""
    for each in annotations:
        yield workflow_command(f"{each.title}: {each.text}", *(each.place or ()))


# One for each of `REPORT_FORMATS` other than `text`, which adds nothing.
_WRITERS: Final = {
    "github": workflow_commands,
}


def say_annotations(shown_as: str, annotations: Iterable[Annotation]) -> None:
    """Print what a value of `--format` adds to the text."""
    if shown_as in _WRITERS:
        for line in _WRITERS[shown_as](annotations):
            say(line)


def workflow_command(message: str, file: Path | None = None, number: int = 1) -> str:
    """Return the workflow command of one violation; it names no file outside of the checkout."""
    path = path_in_checkout(file) if file is not None else ""
    name = _data(path).replace(":", "%3A").replace(",", "%2C")
    place = f"file={name},line={number}," if path else ""
    return f"::error {place}title=syncverify::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def annotations_of(report: Report) -> Iterator[Annotation]:
    """Yield an annotation for each violation, or for each other thing that fails a run."""
    for found in report.violations:
        line = guilty_line(found.violation, report.subject)
        yield Annotation(_title(found.violation), brief_of(found, report), line)
    if report.has_failed and not report.violations:
        for feature in with_rating(report.beyond, "wrong"):
            yield Annotation(f"{feature.feature} is wrong", feature.summary)


def annotation_of_job(violation: Violation) -> Annotation:
    """Return the annotation of a violation in a job, of which no module is loaded."""
    events = (event.words for event in violation.evidence.events)
    text = "\n".join([violation.summary, *events])
    return Annotation(_title(violation), text, place_in_checkout(violation))


def _title(violation: Violation) -> str:
    return f"{violation.property} ({violation.cause})"


def brief_of(found: FoundViolation, report: Report) -> str:
    """Return three lines: the summary of a violation, its hint, the command to replay it."""
    replay = replay_line(found.token, **report.names)
    return f"{found.violation.summary}\nhint: {advice(found)}\nreplay: {replay}"
