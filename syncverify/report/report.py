"""A report: what was verified, what was covered, what was found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from syncverify.replay import Recording, encode
from syncverify.report.coverage import CoverageSummary
from syncverify.report.witness import NoWitness, Witness
from syncverify.scenario import Scenario
from syncverify.schedule import Decision, Schedule
from syncverify.violation import Violation

REPORT_VERSION = 2


@dataclass(frozen=True, slots=True)
class ReportedViolation:
    """A violation, the smallest scenario that shows it, and the token that replays it.

    Attributes:
        violation: The violation.
        scenario: The smallest scenario found.
        decisions: What timing decided in it.
        witness: What comes of a missing order, if it is about one.
    """

    violation: Violation
    scenario: Scenario
    decisions: tuple[Decision, ...] = ()
    witness: Witness | NoWitness | None = None

    @property
    def schedule(self) -> Schedule:
        """Return the choices that lead to the violation."""
        return Schedule.of(self.decisions)

    @property
    def recording(self) -> Recording:
        """Return what there is to know to see it again."""
        violation = self.violation
        return Recording(
            violation.property, violation.cause, self.scenario, self.schedule
        )

    @property
    def token(self) -> str:
        """Return what `syncverify replay` takes."""
        return encode(self.recording)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        witness = {} if self.witness is None else self.witness.to_json()
        return {
            "property": self.violation.property,
            "summary": self.violation.summary,
            "ranks": list(self.violation.ranks),
            "parameters": list(self.violation.parameters),
            "token": self.token,
            "scenario": self.scenario.to_json(),
            "schedule": self.schedule.to_json(),
            "evidence": _plain(
                {"cause": self.violation.cause, **self.violation.evidence}
            ),
            **({"witness": _plain(witness)} if witness else {}),
        }


@dataclass(frozen=True, slots=True)
class Report:
    """What a search came to.

    Attributes:
        subject: Name of the subject.
        backend: Name of the backend.
        seed: Seed of the search.
        examples: Scenarios played.
        seconds: How long it took.
        coverage: Number of scenarios by topic and feature.
        violations: One entry per distinct violation.
        schedules: Number of scenarios by which of their schedules were played.
        explored: What else is known of the runs, in words: schedules, overlap.
        summary: What of the declared space was met, and which properties applied.
    """

    subject: str
    backend: str
    seed: int
    examples: int
    seconds: float
    coverage: dict[str, dict[str, int]]
    violations: tuple[ReportedViolation, ...]
    schedules: dict[str, int] = field(default_factory=dict)
    explored: tuple[str, ...] = ()
    summary: CoverageSummary = field(default_factory=CoverageSummary)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; the format is versioned."""
        return {
            "version": REPORT_VERSION,
            "subject": self.subject,
            "backend": self.backend,
            "seed": self.seed,
            "examples": self.examples,
            "seconds": round(self.seconds, 3),
            "coverage": self.coverage,
            **self.summary.to_json(),
            "schedules": {**self.schedules},
            "explored": list(self.explored),
            "violations": [violation.to_json() for violation in self.violations],
        }


def _plain(value: Any) -> Any:
    """Spell what JSON has no number for: `inf`, `-inf` and `nan`."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value
