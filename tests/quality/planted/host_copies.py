"""Sums that pass through one buffer in pinned memory, and copies that a second stream reduces.

Copies with `non_blocking` are queued, as DeepSpeed's and FSDP2's offloading queues them
(pytorch#180666, Megatron-LM#7398). Only a wait tells that one is done.
"""

import torch
import torch.distributed as dist
from torch import nn

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.placements import (
    local,
    local_grad,
    reduce_groups,
)
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.memory import ReducesCopy
from tests.quality.planted.planted import FILLED, planted, right

TWO_SUMS = Scenario(
    MeshSpec((2,), ("dp",)),
    (ParameterSpec("a", (3,), ("R",)), ParameterSpec("b", (5,), ("R",))),
    (1, 1),
    1,
)
LATE = (FILLED, "accumulated_unordered")
SHOWN = {"scenarios": (TWO_SUMS,), "is_alone": True}
UNORDERED = "nothing orders aten.copy_"


@right(TWO_SUMS)
class OnePinnedBuffer(PlainGrads):
    """Correct: each sum goes to the buffer and back, and the host waits for both copies."""

    capabilities = Capabilities(varying_accumulations=True, device="cuda")

    def bind(self) -> None:
        numel = max(local(each).numel() for each in self.parameters)
        self.pinned = torch.empty(numel, pin_memory=True)
        self.back = torch.cuda.Stream()

    def wait(self) -> None:
        for parameter in self.parameters:
            self.stage(self.summed(parameter))
        torch.cuda.current_stream().wait_stream(self.back)

    def summed(self, parameter: nn.Parameter) -> torch.Tensor:
        """Sum a gradient, and return it as one row."""
        gradient = local_grad(parameter)
        for group in reduce_groups(parameter):
            dist.all_reduce(gradient, group=group)
        return gradient.view(-1)

    def stage(self, row: torch.Tensor) -> None:
        """Let the host see a sum."""
        slot = self.pinned[: row.numel()]
        self.before_fetch()
        slot.copy_(row, non_blocking=True)
        self.after_fetch()
        slot.mul_(2).div_(2)
        self.back.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.back):
            row.copy_(slot, non_blocking=True)

    def before_fetch(self) -> None:
        """Wait until the buffer may be written."""
        self.back.synchronize()

    def after_fetch(self) -> None:
        """Wait until the host may read the buffer."""
        torch.cuda.current_stream().synchronize()


@planted(LATE, **SHOWN, says=(UNORDERED, "in stage before aten.copy_"))
class WritesWhatIsOnItsWay(OnePinnedBuffer):
    """The next sum is copied into the buffer while the one before is copied out of it."""

    def before_fetch(self) -> None:
        pass


@right(TWO_SUMS)
class OrdersBothCopies(OnePinnedBuffer):
    """Correct: the stream of the next copy waits, and not the host."""

    def before_fetch(self) -> None:
        torch.cuda.current_stream().wait_stream(self.back)


@planted(LATE, **SHOWN, says=(UNORDERED, "in stage before aten.mul_"))
class ReadsBeforeItArrives(OnePinnedBuffer):
    """The host reads the buffer before the copy may have arrived."""

    def after_fetch(self) -> None:
        pass


@planted(LATE, **SHOWN, says=(UNORDERED, "in stage before aten.mul_"))
class WaitsForTheCopyBefore(OnePinnedBuffer):
    """The host waits for the event of the sum before."""

    def bind(self) -> None:
        super().bind()
        self.arrived = torch.cuda.Event()

    def after_fetch(self) -> None:
        self.arrived.synchronize()
        self.arrived.record()


@right(TWO_SUMS)
class WaitsForItsEvent(OnePinnedBuffer):
    """Correct: the host waits for the event of this sum."""

    def after_fetch(self) -> None:
        arrived = torch.cuda.Event()
        arrived.record()
        arrived.synchronize()


# Copies that a second stream reduces, and how long their memory is kept.


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
