"""A violation: a property that does not hold, and the cause."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field

from syncverify.judge.evidence import NO_EVIDENCE, Evidence
from syncverify.judge.signs import Clues

# Property and cause of a violation.
Identity = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Violation:
    """One property that does not hold, with its cause.

    Attributes:
        property: Name of the property.
        cause: Short name of the mistake. Property and cause are the identity, under which
            violations are distinguished and shrunk.
        summary: One sentence: expectation, fact, place.
        ranks: Global ranks that show it, in order.
        parameters: Names of the parameters concerned.
        evidence: The facts behind the summary.
        clues: Signs that it shares with other violations of one defect.
    """

    property: str
    cause: str
    summary: str
    ranks: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
    evidence: Evidence = NO_EVIDENCE
    clues: Clues = field(default=Clues(), repr=False, compare=False)

    @builtins.property
    def identity(self) -> Identity:
        """Return property and cause, which tell the violations of a search apart."""
        return (self.property, self.cause)
