"""What is known about one wrong gradient, put together for those who look for its cause."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from syncverify.memory import MemoryRegion
from syncverify.owed import Owed
from syncverify.run import Observation
from syncverify.trace import (
    REDUCING_OPERATIONS,
    CollectiveLaunch,
    Event,
    LifecycleReturn,
    Moment,
    Phase,
)


@dataclass(frozen=True)  # without slots: `cached_property` needs a dictionary
class Evidence:
    """A wrong gradient, and what its rank did.

    Attributes:
        owed: What the gradient should be.
        observed: What it is.
        kind: Of cause, as its value tells.
        events: Of its rank, until it was observed.
        earlier: What was observed before that.
    """

    owed: Owed
    observed: torch.Tensor
    kind: str
    events: Sequence[Event]
    earlier: Sequence[Observation]

    @cached_property
    def launches(self) -> list[CollectiveLaunch]:
        """Collectives of the step, with other ranks."""
        return [
            event
            for event in self.events
            if isinstance(event, CollectiveLaunch)
            and len(event.ranks) > 1
            and event.moment.step == self.owed.step
            and event.moment.phase in {"backward", "wait"}
        ]

    @cached_property
    def reductions(self) -> list[CollectiveLaunch]:
        """Those that reduce the gradient, by name."""
        name = self.owed.spec.name
        own = [event for event in self.launches if name in event.parameters]
        return [event for event in own if event.operation in REDUCING_OPERATIONS]

    @cached_property
    def is_unsent(self) -> bool:
        """Whether it is the rank's own gradient, and no launch of the step names it."""
        name, own = self.owed.spec.name, self.owed.part(self.owed.rank)
        return (
            self.kind == "rank_contribution_missing"
            and not any(name in event.parameters for event in self.launches)
            and any(self.equals(own / divisor) for divisor in {1, self.owed.divisor})
        )

    @cached_property
    def lay(self) -> list[tuple[Moment, MemoryRegion | None]]:
        """Where the gradient lay as each call returned, if there was one."""
        name = self.owed.spec.name
        returns = [e for e in self.events if isinstance(e, LifecycleReturn)]
        return [(event.moment, event.gradients.get(name)) for event in returns]

    def equals(self, value: torch.Tensor) -> bool:
        """Compare with what was observed, in its dtype."""
        return torch.equal(self.observed, value.to(self.observed.dtype))


def until(observation: Observation, events: Sequence[Event]) -> Sequence[Event]:
    """Leave out what came after a gradient was observed.

    Args:
        observation: Of it, after a micro-batch or a `wait()`.
        events: Of its rank.

    Returns:
        Those until the call returned after which it was observed.
    """
    phase: Phase = "wait" if observation.micro_batch is None else "backward"
    call = Moment(phase, observation.step, observation.micro_batch)
    returned = [
        index
        for index, event in enumerate(events)
        if isinstance(event, LifecycleReturn) and event.moment == call
    ]
    return events[: returned[-1] + 1] if returned else ()


def memory(name: str, launch: CollectiveLaunch) -> Iterator[MemoryRegion]:
    """Yield the bytes between the first and the last of a gradient in what is sent."""
    offset_bytes = 0
    for region in launch.regions:
        end_byte = region.end_byte - region.start_byte + offset_bytes
        for slot in launch.slots:
            if slot.parameter == name and offset_bytes <= slot.offset_bytes < end_byte:
                start = region.start_byte + slot.offset_bytes - offset_bytes
                yield MemoryRegion(region.storage, start, start + slot.num_bytes)
        offset_bytes = end_byte


def where(launch: CollectiveLaunch) -> str:
    """Say where and when a collective was launched."""
    return f"at {launch.source} ({launch.moment})"
