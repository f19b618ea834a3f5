"""The violations of a report in a few lines each, for places that show them beside the code.

A workflow command of GitHub is one line, `::error file=...,line=...,title=...::message`. GitHub
reads `%0A` as a newline, and counts paths from the root of the checkout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from syncverify.report.account import Account
from syncverify.report.console import say
from syncverify.report.guilty_line import FileLine, guilty_line, path_in_checkout


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
_WRITERS: Final = {"github": workflow_commands}


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


def annotations_of(account: Account) -> Iterator[Annotation]:
    """Yield an annotation for each explanation."""
    for each in account.explanations:
        place = guilty_line(each.lines, account.subject)
        yield Annotation(each.title, each.brief, place)
