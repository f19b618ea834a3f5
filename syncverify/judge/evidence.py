"""The evidence of a violation: facts as values, one class a family whose values some code reads.

`report/` makes texts and JSON of them; JSON leaves out the fields without `repr`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from typing_extensions import override

from syncverify.judge.ordering.races import Unordered
from syncverify.trace.records import CollectiveLaunch, GroupMade, MemoryUse
from syncverify.trace.run import Detail, Fault
from syncverify.trace.source_lines import CodeLine, Origin, SourceLine, lines_among

Elements = list[float] | None  # elements of a gradient; None for no gradient


@dataclass(frozen=True, slots=True)
class Event:
    """Work of a rank that a violation tells of."""

    words: str
    use: MemoryUse | GroupMade | None = None

    @property
    def origins(self) -> tuple[Origin, ...]:
        """Return the line of the subject that queued the work, and those that led to it."""
        return (self.use.source, *self.use.callers) if self.use else ()


def launched(launch: CollectiveLaunch) -> Event:
    """Return the event of a launch, with its moment."""
    return Event(f"{launch} ({launch.moment})", launch)


class Way(NamedTuple):
    """A collective in which ranks wait."""

    ranks: tuple[int, ...]
    launch: CollectiveLaunch


class Launched(NamedTuple):
    """How often each rank launched a collective at a line."""

    operation: str
    line: Origin
    times: tuple[int, ...]  # in the order of the ranks


@dataclass(frozen=True, slots=True)
class Parting:
    """Where the ways of ranks part that share a group."""

    ranks: tuple[int, ...]
    last: CollectiveLaunch | None  # in which all of them met; None if they never met
    # Collectives of several groups, whose ranks wait for each other in a circle.
    crossed: tuple[Way, ...] = ()
    unequal: tuple[Launched, ...] = ()  # on the group, by ranks that differ


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The facts that all families have."""

    rank: int | None = None  # None where no single one is known
    step: int | None = None  # None where no single one is known
    micro_batch: int | None = None  # of the gradient's backward
    is_proven: bool = True  # the trace leaves no other cause
    is_certain: bool = True
    readings: tuple[str, ...] = ()  # other mistakes that give the same value
    # Events in the order of a report; one without words is that of the summary.
    events: tuple[Event, ...] = ()
    # Lines that the summary or an explanation names, beside those of events.
    named: tuple[Origin, ...] = ()
    parting: Parting | None = None  # None where ranks part nowhere
    unordered: Unordered | None = field(default=None, repr=False, compare=False)
    # More keys of JSON, with values that nothing else reads.
    facts: Mapping[str, object] = field(default_factory=dict, hash=False)

    @property
    def named_lines(self) -> tuple[SourceLine, ...]:
        """Return the lines of the subject that words name."""
        first = [origin for event in self.events for origin in event.origins[:1]]
        return lines_among(dict.fromkeys((*self.named, *first)))

    @property
    def lines(self) -> tuple[SourceLine, ...]:
        """Return the lines of the subject: those that words name, then those behind them."""
        behind = [origin for event in self.events for origin in event.origins]
        return lines_among(dict.fromkeys((*self.named_lines, *behind)))


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongGradient(Evidence):
    """A gradient beside the right one, and the reductions of its rank and step as events."""

    parameter: str
    local_shape: tuple[int, ...]
    contributing_ranks: tuple[int, ...]  # whose gradients it has to contain
    reduction: str  # `sum` or `mean`, or `factor` for a sum over a declared factor
    expected: Elements  # first elements, flattened
    observed: Elements  # first elements, flattened
    explanation: str  # the mistake that gives this value


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenGradient(Evidence):
    """A gradient of a parameter that gets none."""

    observed: Elements


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentReplicas(Evidence):
    """Gradients of ranks that hold the same part of a parameter; elements by rank."""

    gradients: Mapping[int, Elements]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistimed(Evidence):
    """A collective at a moment at which none is allowed."""


class ReducedTwice(Evidence):
    """Two reductions of the same memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TooFewElements(Evidence):
    """Elements that a rank exchanged in a step."""

    owed_numel: int
    exchanged_numel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disordered(Evidence):
    """Two uses of memory without an order, in words; the first event has to come first."""

    memory: str
    remedy: str | None  # None where waits would order the two the wrong way
    streams: tuple[str, ...]  # where each one is made
    waits: tuple[str, ...]  # made in between
    unordered: Unordered = field(repr=False, compare=False)


class Disagreement(Evidence):
    """Events of ranks that exclude each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(Evidence):
    """An early end of the run."""

    kind: str
    # Where each rank stands, or the subject's lines on the stack.
    details: tuple[Detail, ...]
    phase: str | None = None  # call of the rank program that raised
    # What the subject calls its groups, where it raised an error.
    groups: str | None = None
    is_of_list: bool = field(default=False, repr=False)

    @property
    @override
    def lines(self) -> tuple[SourceLine, ...]:
        stack = [each.line for each in self.details if isinstance(each, CodeLine)]
        return (*lines_among(self.named), *stack)


def ended(fault: Fault) -> Ended:
    """Return the evidence of a fault."""
    return Ended(
        kind=fault.kind,
        details=fault.details,
        phase=fault.phase or None,
        named=fault.named,
        is_of_list=fault.misused == "list",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedAgain(Evidence):
    """The difference between two plays of one scenario and schedule."""

    first: str
    again: str


NO_EVIDENCE: Final = Evidence()
