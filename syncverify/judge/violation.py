"""A violation: a property that does not hold, and the cause."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field
from typing import Any

from syncverify.judge.ordering.races import Unordered


@dataclass(frozen=True, slots=True)
class Violation:
    """One property that does not hold, with its cause.

    Attributes:
        property: Name of the property.
        cause: Short name of the mistake. Property and cause are the identity, under which
            violations are told apart and shrunk.
        summary: One sentence: expectation, fact, place.
        ranks: Global ranks that show it, in order.
        parameters: Names of the parameters concerned.
        evidence: Plain JSON values: numbers, moments, source lines.
        unordered: The race or early free, for a violation of order; None for any other.
    """

    property: str
    cause: str
    summary: str
    ranks: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)
    unordered: Unordered | None = field(default=None, repr=False, compare=False)

    @builtins.property
    def identity(self) -> tuple[str, str]:
        """Return property and cause, which tell the violations of a search apart."""
        return (self.property, self.cause)
