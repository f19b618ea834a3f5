"""A violation together with the scenario and the schedule that show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from typing_extensions import override

from syncverify.judge.violation import Violation
from syncverify.scenario.replay_token import Reproducer, encode
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Decision, Schedule
from syncverify.search.fix import Fix
from syncverify.search.left_over_value import LeftOver
from syncverify.search.witness import NoWitness, Witness
from syncverify.trace.source_lines import CodeLine, SourceLine


@dataclass(frozen=True, slots=True)
class RelatedViolation:
    """A violation that another one explains: its identity, and one summary of it.

    Attributes:
        property: Name of the property.
        cause: Short name of the mistake.
        summary: The summary of the first run that showed it.
        is_consequence: Whether it occurred only together with its cause. Otherwise it is
            another form of the same mistake, which occurred by itself.
        lines: Lines of the subject that the summary names.
    """

    property: str
    cause: str
    summary: str
    is_consequence: bool
    lines: tuple[SourceLine, ...] = ()


class LeftOut(NamedTuple):
    """A line of the subject behind something that it left out.

    Attributes:
        line: The line that kept the subject from it, or the line that had to do it.
        why: The reason, in words.
        rounds_down: Whether the line leaves out the rest of a division.
    """

    line: CodeLine
    why: str
    rounds_down: bool = False

    @override
    def __str__(self) -> str:
        return f"{self.line} ({self.why})"


# Causes that a counter or a flag of the step before may have.
_COUNTED: Final = frozenset(
    {
        "contribution_doubled",
        "micro_batch_missing",
        "not_reduced",
        "reduced_early",
        "reduced_twice",
    }
)


@dataclass(frozen=True, slots=True)
class FoundViolation:
    """A violation and the scenario that shows it; a search makes the scenario small.

    Attributes:
        violation: The violation.
        scenario: The scenario; in a report the smallest one that was found.
        decisions: The decisions about timing in that run.
        witness: A legal order that leads to a wrong gradient, or none; None until it is
            looked for, and for violations that are not about order.
        related: Violations that this one explains, in the order of a report.
        fix: A change of the subject's source that was played; None until it is looked for,
            and where none is known.
        acts: Lines of the subject that wrote memory or communicated in the step of the
            violation, with their code; none until they are looked for.
        is_smallest: Whether a search has made the scenario small.
        not_shrunk: Why a search left the scenario as it was met; "" elsewhere.
        left_out: Lines of the subject behind something that it left out, with their code; none
            until they are looked for.
        deciders: Lines of the subject that ran here and in no scenario that is right, with
            their code; none until they are looked for, and where a fix is known.
        left_over: Values that an earlier step left in the subject: with them set back, the
            violation does not show; none until they are looked for.
        tensors: `dtensor`, or `local` where the subject got ordinary tensors, as in
            `Capabilities`.
    """

    violation: Violation
    scenario: Scenario
    decisions: tuple[Decision, ...] = ()
    witness: Witness | NoWitness | None = None
    related: tuple[RelatedViolation, ...] = ()
    fix: Fix | None = None
    acts: tuple[CodeLine, ...] = ()
    is_smallest: bool = False
    not_shrunk: str = ""
    left_out: tuple[LeftOut, ...] = ()
    deciders: tuple[CodeLine, ...] = ()
    left_over: tuple[LeftOver, ...] = ()
    tensors: str = "dtensor"

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
        """Tell whether a step goes wrong as a step that was right came before it.

        This is known for some causes alone, which a counter or a flag may have, and for a
        scenario that was made small: without the step before, the violation was not seen.
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
        return encode(
            Reproducer(*self.violation.identity, self.scenario, self.schedule)
        )
