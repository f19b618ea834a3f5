"""Copies that a second stream reduces, and how long their memory is kept."""

import torch

from syncverify.bugbank.memory import ReducesCopy


class HoldsUntilJoined(ReducesCopy):
    """Correct: copies live until the stream that they came from has waited."""

    def bind(self) -> None:
        super().bind()
        self.held: list[torch.Tensor] = []

    def keep(self, copy: torch.Tensor) -> None:
        self.held.append(copy)

    def wait(self) -> None:
        super().wait()
        self.held.clear()


class RecordsEachCopy(HoldsUntilJoined):
    """Right, but copies pile up: none is used again before the host waits.

    Source: pytorch/pytorch#147168.
    """

    def keep(self, copy: torch.Tensor) -> None:
        copy.record_stream(self.comm)
