"""The seam between a rank and its turns: a scheduler of threads, or another process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from syncverify.sim.turns.stalls import Wait
from syncverify.sim.turns.turn_log import AccessKind


class TurnTaking(Protocol):
    """The turns of a run, as its ranks see them."""

    def block_until(self, ready: Callable[[], bool], wait: Wait) -> None:
        """Give the turn away until `ready()`."""

    def offer_turn(
        self, ready: Callable[[], bool] | None = None, wait: Wait | None = None
    ) -> None:
        """Let others be first, where a schedule says so."""

    def yield_turn(self, wait: Wait | None = None) -> None:
        """Let other ranks run."""

    def hides(self, resource: str) -> bool:
        """Tell whether a host that asks hears "not yet" at once, and no other rank runs before."""

    def poll(self, kind: str, wait: Wait, is_done: Callable[[], bool]) -> bool:
        """Let other ranks run, then tell whether a resource is done, as far as the host sees."""

    def note_access(self, resource: str, access: AccessKind) -> None:
        """Note an access of the current turn to a resource that ranks share."""

    def count_step(self) -> None:
        """Count an operation."""

    def note_pause(self, seconds: float) -> None:
        """Note that the host has slept, after it has let other ranks run."""

    def require_values(self) -> None:
        """Let a host read values of a device."""
