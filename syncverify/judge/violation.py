"""A violation: a property that does not hold, and the cause."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field

from syncverify.judge.evidence import NO_EVIDENCE, Evidence
from syncverify.judge.ordering.races import Unordered


@dataclass(frozen=True, slots=True)
class Clues:
    """Signs that tell whether two violations are one defect.

    A sign is a word that is compared, and not read: a kind of cause, a source line, or two.

    Attributes:
        shows: Signs that the violation shows.
        explained_by: For each finding, the signs of which each would explain the finding too,
            if another violation shows it; an empty set where the finding is a mistake apart.
    """

    shows: frozenset[str] = frozenset()
    explained_by: frozenset[frozenset[str]] = frozenset()

    def __or__(self, other: Clues) -> Clues:
        """Return the clues of several violations of one identity."""
        return Clues(self.shows | other.shows, self.explained_by | other.explained_by)

    def explain(self, other: Clues) -> bool:
        """Tell whether the mistake with these signs explains every finding of another one."""
        findings = other.explained_by
        return bool(findings) and all(self.shows & finding for finding in findings)

    def explains_some(self, other: Clues) -> bool:
        """Tell whether the mistake with these signs explains a finding of another one."""
        return any(self.shows & finding for finding in other.explained_by)


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
        unordered: The race or early free, for a violation of order; None for any other.
        clues: Signs that it shares with other violations of one defect.
    """

    property: str
    cause: str
    summary: str
    ranks: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
    evidence: Evidence = NO_EVIDENCE
    unordered: Unordered | None = field(default=None, repr=False, compare=False)
    clues: Clues = field(default=Clues(), repr=False, compare=False)

    @builtins.property
    def identity(self) -> tuple[str, str]:
        """Return property and cause, which tell the violations of a search apart."""
        return (self.property, self.cause)
