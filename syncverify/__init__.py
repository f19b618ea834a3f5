"""Property-based verification of gradient synchronizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncverify.errors import SyncverifyError, UsageError
from syncverify.scenario import MeshSpec, ParameterSpec, Scenario
from syncverify.subject import Capabilities

if TYPE_CHECKING:
    from syncverify.verification import CoverageGap as CoverageGap
    from syncverify.verification import PropertyViolation as PropertyViolation
    from syncverify.verification import verify as verify

__all__ = [
    "Capabilities",
    "CoverageGap",
    "MeshSpec",
    "ParameterSpec",
    "PropertyViolation",
    "Scenario",
    "SyncverifyError",
    "UsageError",
    "verify",
]

_FACE = ("CoverageGap", "PropertyViolation", "verify")


def __getattr__(name: str) -> object:
    """Import the face on first use: strategies import this package's core themselves."""
    if name in _FACE:
        from syncverify import verification

        return getattr(verification, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
