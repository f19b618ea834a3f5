"""The outcomes of one scenario that the ranks of a torchrun job write into its store."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import torch.distributed as dist
from typing_extensions import override

from syncverify.errors import NoVerdictError
from syncverify.playing.faults import outcomes_fault, positions
from syncverify.playing.gathering import Gathering
from syncverify.playing.messages import unpack_outcome
from syncverify.playing.process_faults import processes_fault
from syncverify.playing.signs_of_life import RemoteRank
from syncverify.processes.silence import SilenceKind
from syncverify.trace.run import Fault

_FIRST_PAUSE_SECONDS = 0.001
_LAST_PAUSE_SECONDS = 0.02
_LOOK_SECONDS = 1.0


@dataclass(kw_only=True)
class StoreGathering(Gathering[RemoteRank]):
    """The outcomes in torchrun's store."""

    aftershock_seconds: ClassVar[float] = 10.0  # on machines of any speed

    store: dist.Store
    job: int

    def lost(self) -> dict[int, str]:
        """Return, by rank, how a rank ended early, or why it counts as silent."""
        silent = {rank: self.processes[rank].why_silent() for rank in self.silent()}
        return {**self.died, **silent}

    def _positions(self) -> list[str]:
        """Return one line about each rank: how it was lost, or where it stands."""
        issued = {rank: status.launches for rank, status in self.statuses.items()}
        lines = [f"rank {rank}: {how}" for rank, how in sorted(self.lost().items())]
        ended = [f"rank {rank}: has ended its part" for rank in sorted(self.outcomes)]
        return [*lines, *positions(issued, ()), *ended]

    def fault(self, again: str) -> Fault | None:
        """Return the reason why not all ranks reached their end.

        Args:
            again: The command that plays the scenario again.

        Raises:
            NoVerdictError: A rank was lost, and no fault of a rank explains it.
        """
        if self._has_fault():
            return outcomes_fault(self.outcomes)
        lost = self.lost()
        if lost:
            named = ", ".join(f"rank {rank}" for rank in sorted(lost))
            place = f"in run {self.job}; to play that one: {again}"
            lines = [f"lost {named}", *self._positions(), place]
            raise NoVerdictError("\n  ".join(lines))
        return processes_fault(self)

    @override
    def _has_fault(self) -> bool:
        # A rank that raised because a peer is gone tells nothing about that peer.
        return any(not each.is_aftershock for each in self._failed())

    @override
    def _is_over(self, findings: dict[int, SilenceKind]) -> bool:
        return bool(self.lost()) or super()._is_over(findings)

    @override
    def _receive(self, patience_seconds: float) -> bool:
        pause = _FIRST_PAUSE_SECONDS
        began = looked = time.monotonic()
        while time.monotonic() - began < patience_seconds:
            if self._take_outcomes():
                return True
            if time.monotonic() - looked > _LOOK_SECONDS:
                looked = time.monotonic()
                if self._sees_a_loss():
                    return False
            time.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE_SECONDS)
        return False

    @override
    def _ask(self, seconds: float) -> None:
        self._note_ends()
        signs = {rank: self.processes[rank].look() for rank in self.pending()}
        self.statuses = {
            rank: sign.status
            for rank, sign in signs.items()
            if sign is not None and sign.job == self.job
        }

    def _take_outcomes(self) -> bool:
        keys = {rank: f"outcome/{self.job}/{rank}" for rank in self.pending()}
        arrived = [rank for rank, key in keys.items() if self.store.check([key])]
        for rank in arrived:
            self.outcomes[rank] = unpack_outcome(self.store.get(keys[rank]))
        return bool(arrived)

    def _sees_a_loss(self) -> bool:
        self._note_ends()
        return bool(self.died) or any(
            self.processes[rank].look() is None for rank in self.pending()
        )

    def _note_ends(self) -> None:
        ends = {rank: self.processes[rank].end() for rank in self.pending()}
        self.died.update({rank: end for rank, end in ends.items() if end is not None})
