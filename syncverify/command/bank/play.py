"""The search of one entry of the bug bank: the defect first, then its fixed twin."""

from __future__ import annotations

import builtins
from dataclasses import dataclass

from syncverify.command.bank.guilt import shows_guilty_line
from syncverify.explain.repair.diagnosis import diagnosed
from syncverify.playing.choice import AnyBackend
from syncverify.scenario.features import optional_features
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.settings import (
    DEFAULT_BANK_EXAMPLES,
    DEFAULT_BANK_SEED,
    DEFAULT_TWIN_EXAMPLES,
    Settings,
)
from syncverify.search.found_violation import FoundViolation
from syncverify.search.search import FirstViolation, find_first
from syncverify.subjects.bugbank.entry import Entry
from syncverify.subjects.subject import Subject


@dataclass(frozen=True, slots=True)
class BankBudget:
    """Numbers of scenarios to play for one entry.

    Attributes:
        examples: Scenarios of the defect, at most.
        twin_examples: Scenarios of the twin, at least; the twin also plays every scenario
            up to the one that shows the defect. 0 means that the twin is not played.
        seed: Same seed, same scenarios.
        diagnoses: Whether to look for a fix, and for the guilty line in the report.
    """

    examples: int = DEFAULT_BANK_EXAMPLES
    twin_examples: int = DEFAULT_TWIN_EXAMPLES
    seed: int = DEFAULT_BANK_SEED
    diagnoses: bool = False


@dataclass(frozen=True, slots=True)
class Caught:
    """A violation, with the numbers of the smallest scenario that shows it.

    Attributes:
        contract: Smallest contract that covers the scenario: `plain`, or the features that
            it has to name beside plain training steps.
        ranks: Number of ranks.
        parameters: Number of parameters.
        steps: Number of training steps.
        token: Token that replays the violation.
    """

    property: str
    cause: str
    contract: str
    ranks: int
    parameters: int
    steps: int
    token: str

    @classmethod
    def of(cls, found: FoundViolation | None) -> Caught | None:
        """Return a violation in brief, None if there is none."""
        if found is None:
            return None
        violation, scenario = found.violation, found.scenario
        return cls(
            property=violation.property,
            cause=violation.cause,
            contract=_smallest_contract(scenario),
            ranks=scenario.mesh.num_ranks,
            parameters=len(scenario.parameters),
            steps=scenario.num_steps,
            token=found.token,
        )


def _smallest_contract(scenario: Scenario) -> str:
    """Return the features of a scenario beyond plain training steps, or `plain`."""
    features = sorted({*map(str, optional_features(scenario))})
    return ", ".join(features) or "plain"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The parts of a diagnosis that the bank counts.

    Attributes:
        is_line_shown: Whether the report shows a guilty line.
        fix: Lines of the fix that was found and played; empty if none was found.
    """

    is_line_shown: bool
    fix: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TwinSearch:
    """The search of a fixed twin, which several entries may share.

    Attributes:
        played_for: Id of the first entry with this twin.
        result: The result of the search.
    """

    played_for: str
    result: FirstViolation


@dataclass(frozen=True, slots=True)
class EntryResult:
    """The result of one entry.

    Attributes:
        id: Id of the entry.
        source: The report of the defect: `owner/project#number`.
        examples: Scenarios until the first violation, or all if there was none.
        seconds: Time of these scenarios.
        caught: The first violation, in its smallest scenario; None if there was none.
        is_cause_right: Whether the violation has the cause that the entry names.
        twin_examples: Scenarios that the twin played.
        twin_played_for: Id of the entry for which the twin played them: several entries
            may have the same twin.
        alarm: The violation of the twin; None if the twin had none.
        diagnosis: The guilty line and the fix; None if they were not looked for.
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
    diagnosis: Diagnosis | None = None

    @builtins.property
    def is_right(self) -> bool:
        """Tell whether the defect was caught and the twin was silent."""
        return self.caught is not None and self.alarm is None


class BankPlayer:
    """Plays entries of the bank, and each twin once.

    Entries with the same twin and the same contract draw the same scenarios for the twin.

    Args:
        backend: The open backend.
        budget: Numbers of scenarios for each entry.
    """

    def __init__(self, backend: AnyBackend, budget: BankBudget) -> None:
        self._backend = backend
        self._budget = budget
        # Keys: twin, contract and number of scenarios.
        self._twins: dict[tuple[object, ...], TwinSearch] = {}

    def play(self, entry: Entry) -> EntryResult:
        """Search for violations of a defect, and of its twin."""
        first = self._search(entry.defect(), self._budget.examples)
        # With fewer scenarios the twin would not meet the one that shows the defect.
        num_examples = max(self._budget.twin_examples, first.num_examples)
        twin = self._search_twin(entry, num_examples)
        caught = Caught.of(first.found)
        return EntryResult(
            id=entry.name,
            source=entry.source,
            backend=self._backend.name,
            examples=first.num_examples,
            seconds=round(first.seconds, 3),
            caught=caught,
            seconds_to_shrink=round(first.seconds_to_shrink, 3),
            is_cause_right=caught is not None and caught.cause in entry.causes,
            twin_examples=twin.result.num_examples,
            twin_played_for=twin.played_for,
            alarm=Caught.of(twin.result.found),
            diagnosis=self._diagnose(entry, first.found),
        )

    def _diagnose(self, entry: Entry, found: FoundViolation | None) -> Diagnosis | None:
        if found is None or not self._budget.diagnoses:
            return None
        violation = diagnosed(found, entry.defect(), self._backend)
        fix = violation.fix.lines if violation.fix else ()
        return Diagnosis(shows_guilty_line(entry, violation), fix)

    def _search_twin(self, entry: Entry, num_examples: int) -> TwinSearch:
        """Search the twin of an entry, unless another entry has searched it."""
        if not self._budget.twin_examples:
            return TwinSearch(entry.name, FirstViolation(num_examples=0, seconds=0.0))
        key = (*entry.shared_scenarios, num_examples)
        if key not in self._twins:
            result = self._search(entry.fixed(), num_examples)
            self._twins[key] = TwinSearch(entry.name, result)
        return self._twins[key]

    def _search(self, subject: Subject, num_examples: int) -> FirstViolation:
        settings = Settings(examples=num_examples, seed=self._budget.seed)
        return find_first(subject, self._backend, settings)
