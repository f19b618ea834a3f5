"""Notes about missing gradients, from the rank that misses them to its peers.

A rank that misses a gradient raises an error and launches nothing. Its peers wait in a
reduction that cannot complete, and they cannot know the reason. So the rank writes a
note before it raises. A peer reads the note when it fails itself: in `wait()`, or
because its reduction was given up. Notes go through the store, because the process
group is blocked. No rank waits for a note.
"""

import json
from collections.abc import Sequence
from contextlib import suppress

from .rendezvous import Rendezvous

_TOPIC = "missing"


class MissingGradients:
    """The notes of all ranks about missing gradients in the current step."""

    def __init__(self, rendezvous: Rendezvous | None) -> None:
        self._rendezvous = rendezvous
        # Number of reduced steps; equal on ranks that share buckets.
        self._step = 0
        self._has_reported = False

    def report(self, call: str, names: Sequence[str]) -> None:
        """Tell the peers that this rank misses gradients, for which `call` raises."""
        if self._rendezvous is not None:
            note = json.dumps([self._step, call, names]).encode()
            self._rendezvous.write(_TOPIC, note)
            self._has_reported = True

    def withdraw(self) -> None:
        """Withdraw the report: the gradients came, or the step was given up."""
        if self._rendezvous is not None and self._has_reported:
            # Replaced and not deleted: a peer may be between `check` and `get`.
            self._rendezvous.write(_TOPIC, json.dumps([-1, "", []]).encode())
            self._has_reported = False

    def note_reduced(self) -> None:
        """Go on to the next step."""
        self.withdraw()
        self._step += 1

    def describe_others(self) -> str:
        """Return "; " and a clause for each rank that misses gradients in this step."""
        return "".join(f"; {clause}" for clause in self._clauses())

    def _clauses(self) -> list[str]:
        clauses: list[str] = []
        if self._rendezvous is None:
            return clauses
        # The store may have ended together with the rank that hosts it.
        with suppress(RuntimeError):
            for peer in self._rendezvous.peers:
                note = self._rendezvous.peek(_TOPIC, peer)
                step, call, names = json.loads(note or b"[-1, null, null]")
                if step == self._step:
                    lacks = f"without a gradient for {', '.join(names)}"
                    clauses.append(f"rank {peer} called {call} {lacks}")
        return clauses
