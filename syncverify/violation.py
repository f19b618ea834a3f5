"""What a property reports when it does not hold."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Violation:
    """One property that does not hold, and why.

    Attributes:
        property: Name of the property.
        cause: Short name of what went wrong; with `property` it is the identity under
            which violations are told apart and shrunk.
        summary: One sentence: expectation, fact, place.
        ranks: Ranks that saw it, in order.
        parameters: Names of the parameters that it concerns.
        evidence: Plain JSON values: numbers, moments, source lines.
    """

    property: str
    cause: str
    summary: str
    ranks: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
    evidence: dict[str, Any] = field(default_factory=dict)

    @builtins.property
    def identity(self) -> tuple[str, str]:
        """Return what distinguishes this violation from others of a search."""
        return (self.property, self.cause)
