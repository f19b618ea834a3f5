"""A violation together with the scenario and the schedule that show it, and its diagnosis."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from typing_extensions import override

from syncverify.judge.ordering.races import Unordered
from syncverify.judge.violation import Violation
from syncverify.scenario.replay_token import Reproducer, encode
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Decision, Schedule
from syncverify.search.plain_state import LeftOver
from syncverify.trace.source_lines import CodeLine, SourceLine


@dataclass(frozen=True, slots=True)
class RelatedViolation:
    """A violation that another one explains: its identity, and the summary of the first run."""

    property: str
    cause: str
    summary: str
    # Whether it occurred only together with its cause. Otherwise it is another form of the same
    # mistake, which occurred by itself.
    is_consequence: bool
    lines: tuple[SourceLine, ...] = ()  # of the subject, that the summary names


class LeftOut(NamedTuple):
    """A line that kept the subject from something, or that had to do it, and why."""

    line: CodeLine
    why: str
    rounds_down: bool = False  # whether the line leaves out the rest of a division

    @override
    def __str__(self) -> str:
        return f"{self.line} ({self.why})"


@dataclass(frozen=True, slots=True)
class Fix:
    """A change of some lines of the subject that was played: the scenario holds all properties.

    `num_others` other scenarios, of at most `max_ranks` ranks, were played with the change; none of
    them shows a violation that it does not show without, or costs more.
    """

    place: SourceLine
    # Lines after `+ ` come, lines after `- ` go, others stay.
    lines: tuple[str, ...]
    num_others: int
    max_ranks: int
    sets_back: bool = False  # whether it sets back what one step leaves for the next
    # The change as the search for it made it, to be played on other scenarios.
    change: object = field(default=None, repr=False, compare=False)

    @property
    def old(self) -> list[str]:
        """The shown lines as they were."""
        return [line[2:] for line in self.lines if not line.startswith("+ ")]

    @property
    def new(self) -> list[str]:
        """The shown lines with the change."""
        return [line[2:] for line in self.lines if not line.startswith("- ")]

    @property
    def rounds_up(self) -> bool:
        """Tell whether a number is rounded up that was rounded down."""
        return {e[:2] for e in self.lines if "-(-" in e} - {"  "} == {"+ "}

    @property
    def num_removed(self) -> int:
        """Number of lines that go."""
        return sum(line.startswith("- ") for line in self.lines)


@dataclass(frozen=True, slots=True)
class Witness:
    """An order that the streams allow, and the wrong gradient that it leads to."""

    # The race or early free that runs the other way round; None where the order in which the host
    # queues the work is wrong already.
    inverted: Unordered | None
    is_of_violation: bool  # whether this pair is the first and second of the violation
    outcome: str  # which gradient is wrong, and why
    # Elements of the right gradient, and of the wrong one; None where there is no gradient.
    expected: list[float] | None
    observed: list[float] | None
    # Property and cause of the violation that the wrong gradient is.
    identity: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class NoWitness:
    """No order that was played leads to a wrong gradient in this scenario."""

    num_orders: int
    reasons: tuple[str, ...] = ()  # others why no harm shows
    # Whether the search met a wrong gradient as a consequence, in another scenario.
    is_elsewhere: bool = False


# Causes that a counter or a flag of the step before may have.
_COUNTED: Final = frozenset(
    {
        *("contribution_doubled", "micro_batch_missing", "not_reduced"),
        *("reduced_early", "reduced_twice"),
    }
)


@dataclass(frozen=True, slots=True)
class FoundViolation:
    """A violation and the scenario that shows it; a search makes the scenario small.

    The diagnosis looks for the witness, the fix and the lines: they are missing until then.
    """

    violation: Violation
    scenario: Scenario
    decisions: tuple[Decision, ...] = ()  # about timing in that run
    # None also for violations that are not about order.
    witness: Witness | NoWitness | None = None
    # Violations that this one explains, in the order of a report.
    related: tuple[RelatedViolation, ...] = ()
    fix: Fix | None = None
    # Lines of the subject that wrote memory or communicated in the step of the violation.
    acts: tuple[CodeLine, ...] = ()
    # Whether a search has made the scenario small, or why it left it as it was met.
    is_smallest: bool = False
    not_shrunk: str = ""
    left_out: tuple[LeftOut, ...] = ()
    # Lines of the subject that ran here and in no scenario that is right; none where a fix is
    # known.
    deciders: tuple[CodeLine, ...] = ()
    # Values that an earlier step left in the subject: with them set back, the violation does not
    # show.
    left_over: tuple[LeftOver, ...] = ()
    tensors: str = "dtensor"  # as in `Capabilities`

    @property
    def identities(self) -> list[tuple[str, str]]:
        """List the identity of the violation, and those of all that it explains."""
        explained = [(related.property, related.cause) for related in self.related]
        return [self.violation.identity, *explained]

    @property
    def lines(self) -> tuple[SourceLine, ...]:
        """Return the lines of the subject that a report names, beside those of the fix."""
        behind = (*self.acts, *(each.line for each in self.left_out), *self.deciders)
        related = (line for each in self.related for line in each.lines)
        own = (each.line for each in behind)
        return (*self.violation.evidence.lines, *own, *related)

    @property
    def starts_wrongly(self) -> bool:
        """Tell whether a step is known to go wrong as a step that was right came before it.

        The scenario was made small: without the step before, the violation was not seen.
        """
        is_later = (self.violation.evidence.step or 0) > 0
        return is_later and self.is_smallest and self.violation.cause in _COUNTED

    @property
    def schedule(self) -> Schedule:
        """Return the choices that lead to the violation."""
        return Schedule.of(self.decisions)

    @property
    def token(self) -> str:
        """Return the token that `syncverify replay` takes."""
        identity = self.violation.identity
        return encode(Reproducer(*identity, self.scenario, self.schedule))
