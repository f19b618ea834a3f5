"""The call behind a wrong gradient, where the trace shows it.

A value tells what was added to what. The same value follows from several mistakes: what
lacks the other ranks was never reduced, or reduced and read elsewhere. Where the trace of
the run leaves one of them only, it is the cause, with the line that made it.

Note [What a trace can show]
    A launch names the parameters whose `.grad` lies in what is sent. Gradients that were
    copied elsewhere first have no name there. So a launch that names nobody may be about
    anybody, and nothing is concluded from its lack of names.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from syncverify.decoding import Cause
from syncverify.memory import MemoryRegion
from syncverify.owed import Owed
from syncverify.trace import (
    AUTOGRAD,
    REDUCING_OPERATIONS,
    Access,
    CollectiveLaunch,
    Event,
)

_COUNTED_OFTEN = frozenset({"scaled", "contribution_doubled", "miscounted"})
_LACKS_BACKWARDS = frozenset(
    {
        "micro_batch_missing",
        "miscounted",
        "never_written",
        "partly_wrong",
        "rank_contribution_missing",
        "unexplained",
    }
)


@dataclass(frozen=True)  # without slots: `cached_property` needs a dictionary
class Evidence:
    """A wrong gradient, and what its rank did.

    Attributes:
        owed: What the gradient should be.
        observed: What it is.
        kind: Of cause, as its value tells.
        events: Of its rank.
    """

    owed: Owed
    observed: torch.Tensor
    kind: str
    events: Sequence[Event]

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

    def equals(self, value: torch.Tensor) -> bool:
        """Compare with what was observed, in its dtype."""
        return torch.equal(self.observed, value.to(self.observed.dtype))


def mechanism(
    owed: Owed, observed: torch.Tensor | None, cause: Cause, events: Sequence[Event]
) -> Cause:
    """Name the call that made a gradient wrong.

    Args:
        owed: What the gradient should be.
        observed: What it is.
        cause: What its value tells.
        events: What its rank did.

    Returns:
        What the trace tells, or `cause` if it tells nothing more.
    """
    if observed is None:
        return cause
    evidence = Evidence(owed, observed, cause.kind, events)
    proposals = (_view_lost, _not_reduced, _reduced_twice, _reduced_early, _erased)
    told = (proposal(evidence) for proposal in proposals)
    return next((cause for cause in told if cause is not None), cause)


def _view_lost(evidence: Evidence) -> Cause | None:
    """Find a launch of memory in which the gradient lay in an earlier step."""
    owed = evidence.owed
    if not evidence.is_unsent:
        return None
    for event in evidence.events:
        if not isinstance(event, CollectiveLaunch) or event.moment.step >= owed.step:
            continue
        slots = list(_memory(owed.spec.name, event))
        for launch in evidence.launches:
            if any(own.overlaps(slot) for own in launch.regions for slot in slots):
                text = (
                    f"it is rank {owed.rank}'s own gradient: `.grad` does not lie in the "
                    f"memory that is reduced {_place(launch)}, where it lay in step "
                    f"{event.moment.step}"
                )
                return Cause("view_lost", text)
    return None


def _not_reduced(evidence: Evidence) -> Cause | None:
    launches = evidence.launches
    if not evidence.is_unsent or not all(event.parameters for event in launches):
        return None
    named = sorted({name for launch in launches for name in launch.parameters})
    told = f"they have {', '.join(named)}" if named else "there is none"
    text = (
        f"it is rank {evidence.owed.rank}'s own gradient, and no collective of the step "
        f"has it: {told}"
    )
    return Cause("not_reduced", text)


def _reduced_twice(evidence: Evidence) -> Cause | None:
    # A mean of means is right, and a sum of sums too large by the number of its ranks.
    if evidence.kind not in _COUNTED_OFTEN:
        return None
    name, value = evidence.owed.spec.name, evidence.owed.value()
    sums = [
        e for e in evidence.reductions if e.reduce_op == "SUM" and _is_whole(name, e)
    ]
    again = Counter(event.ranks for event in sums)
    factor = math.prod(len(ranks) ** (count - 1) for ranks, count in again.items())
    if not evidence.equals(value * factor):
        return None
    pairs = itertools.combinations(sums, 2)
    first, second = next(pair for pair in pairs if pair[0].ranks == pair[1].ranks)
    text = (
        f"what ranks {list(first.ranks)} had summed they summed again: it was reduced "
        f"{_place(first)} and {_place(second)}"
    )
    return Cause("reduced_twice", text)


def _is_whole(name: str, launch: CollectiveLaunch) -> bool:
    num_bytes = sum(region.end_byte - region.start_byte for region in launch.regions)
    return any(
        slot.parameter == name and slot.offset_bytes >= 0 and slot.end_byte <= num_bytes
        for slot in launch.slots
    )


def _reduced_early(evidence: Evidence) -> Cause | None:
    """Find what was accumulated after the last reduction, or agreed to be."""
    if evidence.kind not in _LACKS_BACKWARDS or not evidence.reductions:
        return None
    launch, count = evidence.reductions[-1], evidence.owed.count
    micro_batch = launch.moment.micro_batch
    if micro_batch is not None and micro_batch < count - 1:
        text = f"not again, before the last of {count} micro-batches"
    else:
        after = itertools.dropwhile(lambda event: event is not launch, evidence.events)
        added = next(_accumulations(evidence.owed, launch, after), None)
        if added is None:
            return None
        text = f"accumulated again after that ({added.moment})"
    return Cause("reduced_early", f"it was reduced {_place(launch)}, and {text}")


def _erased(evidence: Evidence) -> Cause | None:
    if evidence.kind != "never_written" or not evidence.reductions:
        return None
    launch = evidence.reductions[0]
    before = itertools.takewhile(lambda event: event is not launch, evidence.events)
    added = next(_accumulations(evidence.owed, launch, before), None)
    if added is None:
        return None
    text = (
        f"it is all zeros, although autograd added to it ({added.moment}) before it was "
        f"reduced {_place(launch)}: it was cleared, or multiplied by 0"
    )
    return Cause("erased", text)


def _accumulations(
    owed: Owed, launch: CollectiveLaunch, events: Iterable[Event]
) -> Iterator[Access]:
    """Yield where autograd itself adds to the part of a launch that is owed."""
    slots = list(_memory(owed.spec.name, launch))
    for event in events:
        if (
            isinstance(event, Access)
            and event.source == AUTOGRAD
            and (event.moment.step, event.moment.phase) == (owed.step, "backward")
            and any(own.overlaps(slot) for own in event.writes for slot in slots)
        ):
            yield event


def _memory(name: str, launch: CollectiveLaunch) -> Iterator[MemoryRegion]:
    """Yield the bytes between the first and the last of a gradient in what is sent."""
    offset_bytes = 0
    for region in launch.regions:
        end_byte = region.end_byte - region.start_byte + offset_bytes
        for slot in launch.slots:
            if slot.parameter == name and offset_bytes <= slot.offset_bytes < end_byte:
                start = region.start_byte + slot.offset_bytes - offset_bytes
                yield MemoryRegion(region.storage, start, start + slot.num_bytes)
        offset_bytes = end_byte


def _place(launch: CollectiveLaunch) -> str:
    return f"at {launch.source} ({launch.moment})"
