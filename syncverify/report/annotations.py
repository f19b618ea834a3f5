"""The violations of a report in a few lines each, for places that show them beside the code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from syncverify.judge.violation import Violation
from syncverify.replay_line import replay_line
from syncverify.report.console import say
from syncverify.report.github import annotation
from syncverify.report.guilty_line import guilty_line, place_in_checkout
from syncverify.report.hints import advice
from syncverify.report.observed import with_rating
from syncverify.report.report import Report
from syncverify.search.found_violation import FoundViolation


def say_annotations(shown_as: str, report: Report) -> None:
    """Print what a value of `--format` adds to the text."""
    for line in _WRITERS[shown_as](report):
        say(line)


def _nothing(_: Report) -> Iterator[str]:
    yield from ()


def workflow_commands(report: Report) -> Iterator[str]:
    """Yield a workflow command of GitHub for each violation, or for what else fails a run."""
    for found in report.violations:
        violation = found.violation
        line = guilty_line(violation, report.subject)
        words = f"{violation.property} ({violation.cause}): {brief_of(found, report)}"
        yield annotation(words, line.file, line.number) if line else annotation(words)
    if report.has_failed and not report.violations:
        for feature in with_rating(report.beyond, "wrong"):
            yield annotation(f"{feature.feature} is wrong: {feature.summary}")


# One for each of `REPORT_FORMATS`.
_WRITERS: Final[dict[str, Callable[[Report], Iterator[str]]]] = {
    "text": _nothing,
    "github": workflow_commands,
}


def annotation_of_job(violation: Violation) -> str:
    """Return the workflow command of a violation in a job, of which no module is loaded."""
    words = f"{violation.property} ({violation.cause}): {violation.summary}"
    events = violation.evidence.events
    lines = "\n".join([words, *(event.words for event in events)])
    place = place_in_checkout(violation)
    return annotation(lines, place.file, place.number) if place else annotation(lines)


def brief_of(found: FoundViolation, report: Report) -> str:
    """Return three lines: the summary of a violation, its hint, the command to replay it."""
    replay = replay_line(
        found.token, report.subject, report.backend, report.contract_choice
    )
    return f"{found.violation.summary}\nhint: {advice(found)}\nreplay: {replay}"
