"""Violations are saved at the moment at which they are met, and again when they are shrunk.

A run that is interrupted, killed or out of memory thus loses no violation that it has met.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from syncverify.scenario.token import Reproducer
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.search.replay import SavedViolations
from syncverify.search.result import Progress, scenario_size


@dataclass(slots=True)
class KeepingProgress:
    """Progress that saves violations and then tells a listener of them, once each.

    Attributes:
        saved: Store of the violations.
        listener: Listener of progress.
    """

    saved: SavedViolations
    listener: Progress
    # The reproducer in the store by identity: that of the first scenario until it is shrunk.
    _unshrunk: dict[Identity, Reproducer] = field(default_factory=dict)
    _shrunk: dict[Identity, FoundViolation] = field(default_factory=dict)

    def played(self, num_examples: int, num_violations: int) -> None:
        """Tell the listener."""
        self.listener.played(num_examples, num_violations)

    def found(self, violation: FoundViolation) -> None:
        """Save a violation and tell the listener, unless its identity was met before."""
        identity = violation.violation.identity
        if identity in self._unshrunk or identity in self._shrunk:
            return
        self._unshrunk[identity] = violation.reproducer
        self.saved.save_unshrunk(violation.reproducer)
        self.listener.found(violation)

    def shrinking(self, identity: Identity, num_runs: int) -> None:
        """Tell the listener."""
        self.listener.shrinking(identity, num_runs)

    def shrunk(self, violation: FoundViolation) -> None:
        """Save a shrunk violation in place of a larger one, and tell the listener."""
        identity = violation.violation.identity
        known = self._shrunk.get(identity)
        if known is not None and not _is_smaller(violation, known):
            return
        self._shrunk[identity] = violation
        self.saved.save(violation.reproducer)
        if known is not None and known.reproducer != violation.reproducer:
            self.saved.drop(known.reproducer)
        self._drop_unshrunk(identity)
        self.listener.shrunk(violation)

    def keep_only(self, reported: Iterable[FoundViolation]) -> None:
        """Drop what was met and is not reported, because another violation explains it."""
        kept = {entry.violation.identity for entry in reported}
        for identity in self._unshrunk.keys() - kept:
            self._drop_unshrunk(identity)
        for identity in self._shrunk.keys() - kept:
            self.saved.drop(self._shrunk.pop(identity).reproducer)

    def _drop_unshrunk(self, identity: Identity) -> None:
        if identity in self._unshrunk:
            self.saved.drop_unshrunk(self._unshrunk.pop(identity))


def _is_smaller(one: FoundViolation, other: FoundViolation) -> bool:
    return scenario_size(one.scenario) < scenario_size(other.scenario)
