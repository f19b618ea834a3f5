"""Which rank lacks which gradient, as far as the ranks have said so.

A rank that lacks a gradient raises, and launches nothing; the others wait for it in a
reduction that cannot complete, and cannot know why. So it leaves a note before it raises.
Whoever fails later finds it: in `wait()` for a reason of its own, or because a reduction
was given up. Notes go through the store, since the process group is what is stuck, and
are peeked at: nobody waits for a rank to complain.
"""

import json
from collections.abc import Sequence
from contextlib import suppress

import torch.distributed as dist

from .rendezvous import Rendezvous

_TOPIC = "missing"


class MissingGradients:
    """The notes of all ranks that share buckets, on the step that they are in.

    Args:
        rendezvous: Where the notes are; None where there is nobody to read them.
    """

    def __init__(self, rendezvous: Rendezvous | None) -> None:
        self._rendezvous = rendezvous
        # How many steps were reduced; ranks that share buckets agree on it.
        self._step = 0
        self._has_left = False

    def leave(self, call: str, names: Sequence[str]) -> None:
        """Tell the other ranks that this one lacks gradients.

        Args:
            call: What it refuses for that.
            names: Of the parameters.
        """
        if self._rendezvous is not None:
            note = json.dumps([self._step, call, names]).encode()
            self._rendezvous.leave(_TOPIC, note)
            self._has_left = True

    def take_back(self) -> None:
        """Do not lack gradients any more, or give up the step."""
        if self._rendezvous is not None and self._has_left:
            # Replaced and not deleted: somebody may be about to read it.
            self._rendezvous.leave(_TOPIC, json.dumps([-1, "", []]).encode())
            self._has_left = False

    def note_reduced(self) -> None:
        """Go on to the next step."""
        self.take_back()
        self._step += 1

    def of_others(self) -> str:
        """Say what other ranks lack in this step.

        Returns:
            To append to a message: nothing, or "; " and a clause for each rank.
        """
        return "".join(f"; {clause}" for clause in self._clauses())

    def _clauses(self) -> list[str]:
        clauses: list[str] = []
        if self._rendezvous is None:
            return clauses
        # Where the store went away with the rank that hosts it, nothing can be said.
        with suppress(dist.DistError):
            for peer in self._rendezvous.peers:
                note = self._rendezvous.peek(_TOPIC, peer)
                step, call, names = json.loads(note or b"[-1, null, null]")
                if step == self._step:
                    lacks = f"without a gradient for {', '.join(names)}"
                    clauses.append(f"rank {peer} called {call} {lacks}")
        return clauses
