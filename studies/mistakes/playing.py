"""Searches of a source for violations, as `syncverify run` makes them."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from studies.mistakes.corpus import subject_of
from syncverify.command.verification.reported_search import run_search
from syncverify.playing.choice import open_backend
from syncverify.playing.program.warnings_once import show_warnings_once
from syncverify.report.hints import certainty
from syncverify.report.run import explanation_of
from syncverify.scenario.settings import Settings
from syncverify.search.found_violation import Fix, FoundViolation
from syncverify.subjects.subject import Subject, resolve

SEED: Final = 0


@dataclass(frozen=True, slots=True)
class Told:
    """A violation, as a report tells it.

    Attributes:
        identity: Property and cause, as the report writes them.
        cause: Short name of the mistake.
        certainty: How sure the cause is, in words.
        text: The whole block of the report.
    """

    identity: str
    cause: str
    certainty: str
    text: str

    @property
    def is_certain(self) -> bool:
        """Tell whether the report calls the cause certain."""
        return self.certainty.startswith("certain")


def told_about(base: str, source: str, examples: int) -> list[tuple[Told, Fix | None]]:
    """Search a source for violations.

    Returns:
        The violations in the order of the report, each with its fix.
    """
    with subject_from(base, source) as subject:
        with contextlib.closing(open_backend("sim", subject)) as backend:
            settings = Settings(examples=examples, seed=SEED)
            report = run_search(subject, backend, settings)
        return [(_told(entry, subject.name), entry.fix) for entry in report.violations]


def _told(entry: FoundViolation, name: str) -> Told:
    violation = entry.violation
    return Told(
        f"{violation.property} ({violation.cause})",
        violation.cause,
        certainty(violation.cause, violation.evidence),
        explanation_of(entry, subject=name, backend="sim").text(),
    )


@contextlib.contextmanager
def subject_from(base: str, source: str) -> Iterator[Subject]:
    """Write a source into an empty folder, go there, and load its subject."""
    show_warnings_once()
    torch.set_num_threads(1)
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{base}.py").write_text(source, encoding="utf-8")
        os.chdir(folder)
        try:
            yield resolve(subject_of(base))
        finally:
            os.chdir(before)
            sys.modules.pop(base, None)  # the next source has the same name
