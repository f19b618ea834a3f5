"""What a search of one peer came to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from syncverify.backends.choice import AnyBackend
from syncverify.properties import ALL_PROPERTIES
from syncverify.subject import Subject
from syncverify.verification import run_search

RANKS = 4


@dataclass(frozen=True, slots=True)
class Played:
    """One row of the table.

    Attributes:
        subject: Name of the peer.
        backend: Where it was played.
        examples: Scenarios played.
        num_promises: Properties that were checked in each of them.
        violations: As `property (cause)`.
        tokens: What replays them, in the same order.
        seconds: How long it took.
    """

    subject: str
    backend: str
    examples: int
    num_promises: int
    violations: tuple[str, ...]
    tokens: tuple[str, ...]
    seconds: float

    def unknown(self, known: frozenset[str]) -> bool:
        """Tell whether a violation is none of the known ones."""
        return not known.issuperset(self.violations)

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def play(subject: Subject, backend: AnyBackend, examples: int, seed: int) -> Played:
    """Search for violations of a peer.

    Args:
        subject: The peer.
        backend: Where to play.
        examples: Scenarios to play.
        seed: Same seed, same scenarios.

    Returns:
        What came of it.
    """
    report = run_search(subject, backend, ranks=RANKS, examples=examples, seed=seed)
    found = [each.violation for each in report.violations]
    return Played(
        subject.name,
        backend.name,
        report.examples,
        len(ALL_PROPERTIES),
        tuple(f"{violation.property} ({violation.cause})" for violation in found),
        tuple(each.token for each in report.violations),
        round(report.seconds, 1),
    )
