"""A violation: a property that does not hold, and the cause."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field

from syncverify.judge.evidence import NO_EVIDENCE, Evidence
from syncverify.judge.signs import Clues, Signs

# Property and cause of a violation.
Identity = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Violation:
    """One property that does not hold, with its cause.

    A check finds one for each place; `merge` joins those of a cause, and names the property.
    """

    property: str  # "" until `merge` gives it
    cause: str
    summary: str  # one sentence: expectation, fact, place
    ranks: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()  # names
    evidence: Evidence = NO_EVIDENCE  # the facts behind the summary
    # Signs that it shares with other violations of one defect.
    clues: Clues = field(default=Clues(), repr=False, compare=False)

    @builtins.property
    def rank(self) -> int | None:
        """Return the first rank that shows it; None where no single rank does."""
        return self.ranks[0] if self.ranks else None

    @builtins.property
    def parameter(self) -> str | None:
        """Return the first parameter concerned; None where it is about none."""
        return self.parameters[0] if self.parameters else None

    @builtins.property
    def identity(self) -> Identity:
        """Return property and cause, which tell the violations of a search apart."""
        return (self.property, self.cause)


def finding(
    cause: str,
    summary: str,
    rank: int | None = None,
    parameters: str | tuple[str, ...] | None = None,
    evidence: Evidence = NO_EVIDENCE,
    shows: Signs = frozenset(),
    explained_by: Signs = frozenset(),
) -> Violation:
    """Return what a check finds in one place; signs are those of `Clues`."""
    return Violation(
        property="",
        cause=cause,
        summary=summary,
        ranks=() if rank is None else (rank,),
        parameters=(parameters,) if isinstance(parameters, str) else parameters or (),
        evidence=evidence,
        clues=Clues.of_finding(shows, explained_by),
    )
