"""Play one entry of the bug bank: search the defect, then its twin."""

from __future__ import annotations

import builtins
from dataclasses import asdict, dataclass
from typing import Any

from strategies.first_violation import FirstViolation, find_first
from strategies.search_result import Found, SearchPlan
from syncverify.backends.choice import AnyBackend
from syncverify.bugbank.entry import Entry
from syncverify.replay import Recording, encode
from syncverify.subject import Subject
from syncverify.verification import DEFAULT_RANKS, SilentProgress

DEFAULT_BANK_EXAMPLES = 500


@dataclass(frozen=True, slots=True)
class Budget:
    """How long to search.

    Attributes:
        examples: Scenarios a defect.
        twin_examples: Scenarios a twin, and at least as many as show the defect; 0 means
            that it is not played.
        seed: Same seed, same scenarios.
    """

    examples: int = DEFAULT_BANK_EXAMPLES
    twin_examples: int = 10
    seed: int = 0

    def plan(self, num_examples: int) -> SearchPlan:
        """Return what to search."""
        return SearchPlan(DEFAULT_RANKS, num_examples, self.seed)


@dataclass(frozen=True, slots=True)
class Caught:
    """A violation in the smallest scenario that shows it.

    Attributes:
        property: Name of the property.
        cause: What went wrong.
        ranks: Size of the world.
        parameters: Number of parameters.
        steps: Number of steps.
        token: What `syncverify replay` takes.
    """

    property: str
    cause: str
    ranks: int
    parameters: int
    steps: int
    token: str

    @classmethod
    def of(cls, found: Found | None) -> Caught | None:
        """Sum up a violation, if there is one."""
        if found is None:
            return None
        violation, scenario = found.violation, found.scenario
        recording = Recording(
            violation.property, violation.cause, scenario, found.schedule
        )
        return cls(
            violation.property,
            violation.cause,
            scenario.mesh.num_ranks,
            len(scenario.parameters),
            scenario.num_steps,
            encode(recording),
        )


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one entry.

    Attributes:
        id: Of the entry.
        source: Of the entry.
        backend: Where it was played.
        examples: Scenarios until the first violation, or all if there was none.
        seconds: How long they took.
        caught: The first violation, made small; None if there was none.
        seconds_to_shrink: How long that took.
        is_cause_right: Whether the violation has the cause that the entry names.
        twin_examples: Scenarios that the twin played.
        twin_played_for: Id of the entry for which it played them: several entries may have
            one twin.
        alarm: The twin's violation; None if it was silent.
    """

    id: str
    source: str
    backend: str
    examples: int
    seconds: float
    caught: Caught | None
    seconds_to_shrink: float
    is_cause_right: bool
    twin_examples: int
    twin_played_for: str
    alarm: Caught | None

    @builtins.property
    def is_as_it_should_be(self) -> bool:
        """Tell whether the defect was caught, and its twin left alone."""
        return self.caught is not None and self.alarm is None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


class Player:
    """Plays entries, and each twin once.

    Entries that have one twin and one contract draw the same scenarios for it.

    Args:
        backend: Where to play.
        budget: How long to search.
    """

    def __init__(self, backend: AnyBackend, budget: Budget) -> None:
        self._backend = backend
        self._budget = budget
        self._told = SilentProgress()
        # By twin, contract and number of scenarios: for which entry, and what came of it.
        self._twins: dict[tuple[object, ...], tuple[str, FirstViolation]] = {}

    def play(self, entry: Entry) -> Played:
        """Search for violations of a defect, and of its twin.

        Args:
            entry: What to play.

        Returns:
            What came of it.
        """
        first = self._search(entry.defect(), self._budget.examples)
        # As far as the defect needed, or the twin would not meet what shows it.
        num_examples = max(self._budget.twin_examples, first.num_examples)
        played_for, twin = entry.id, FirstViolation(0, 0.0)
        if self._budget.twin_examples:
            played_for, twin = self._twin(entry, num_examples)
        caught = Caught.of(first.found)
        return Played(
            id=entry.id,
            source=entry.source,
            backend=self._backend.name,
            examples=first.num_examples,
            seconds=round(first.seconds, 3),
            caught=caught,
            seconds_to_shrink=round(first.seconds_to_shrink, 3),
            is_cause_right=caught is not None and caught.cause == entry.cause,
            twin_examples=twin.num_examples,
            twin_played_for=played_for,
            alarm=Caught.of(twin.found),
        )

    def _twin(self, entry: Entry, num_examples: int) -> tuple[str, FirstViolation]:
        key = (*entry.contract, num_examples)
        if key not in self._twins:
            self._twins[key] = (entry.id, self._search(entry.fixed(), num_examples))
        return self._twins[key]

    def _search(self, subject: Subject, num_examples: int) -> FirstViolation:
        plan = self._budget.plan(num_examples)
        return find_first(subject, self._backend, plan, self._told)
