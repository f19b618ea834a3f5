"""Play the same scenarios on `sim` and `streams`, both in the default order, and compare."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import override

from studies.pages.bank_page import figures
from syncverify.backends.sim import SimBackend
from syncverify.backends.streams import StreamsBackend
from syncverify.bugbank.catalogue import entries, entry_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE
from syncverify.scenario.token import Reproducer, decode, encode
from syncverify.search.drawing import Drawing
from syncverify.search.judge import Identity, Judge
from syncverify.search.schedules import ScheduleChoice
from syncverify.subjects.subject import Subject, resolve

RIGHT: Final = ("synchronizer", "ddp")
NUM_DEFECTS: Final = 20
NUM_SCENARIOS: Final = 200
_RANKS: Final = 4
_SEED: Final = 0


def defects() -> list[str]:
    """List the first 20 defects of the bank, by name, that show in the default order."""
    caught = {row["id"]: row["caught"] for row in figures()["entries"]}
    names = sorted(entry.name for entry in entries())
    return [name for name in names if _needs_no_order(caught.get(name))][:NUM_DEFECTS]


def _needs_no_order(caught: dict[str, str] | None) -> bool:
    return caught is not None and decode(caught["token"]).schedule == DEFAULT_SCHEDULE


def subject_of(name: str) -> Subject:
    """Return a built-in subject, or a defect of the bank."""
    return resolve(name) if name in RIGHT else entry_of(name).defect()


def drawn(subject: Subject, count: int) -> list[Scenario]:
    """Return the scenarios that a search of a subject plays first."""
    return Drawing(subject.capabilities, _RANKS, count, _SEED).drawn()


@dataclass(slots=True)
class Compared:
    """Scenarios that were played on both.

    Attributes:
        num_scenarios: Number of scenarios.
        num_wrong: Number of those with a violation on `sim`.
        different: Tokens of those with another verdict on `streams`.
    """

    num_scenarios: int = 0
    num_wrong: int = 0
    different: list[str] = field(default_factory=list)

    def __add__(self, other: Compared) -> Compared:
        """Return the scenarios of both."""
        return Compared(
            self.num_scenarios + other.num_scenarios,
            self.num_wrong + other.num_wrong,
            self.different + other.different,
        )

    @override
    def __str__(self) -> str:
        """Tell the numbers, and the tokens of the differences."""
        counts = f"{self.num_scenarios} scenarios, {self.num_wrong} with a violation"
        return " ".join([f"{counts}, {len(self.different)} different", *self.different])


def compared(subject: Subject, scenarios: Iterable[Scenario]) -> Compared:
    """Play scenarios on both backends."""
    found = Compared()
    with closing(StreamsBackend()) as streams:
        backends = (SimBackend(), streams)
        for scenario in scenarios:
            on_threads, on_processes = (
                _verdict(subject, each, scenario) for each in backends
            )
            found.num_scenarios += 1
            found.num_wrong += bool(on_threads)
            if on_threads != on_processes:
                one, *_ = on_threads ^ on_processes
                found.different.append(encode(Reproducer(*one, scenario)))
    return found


def _verdict(
    subject: Subject, backend: SimBackend | StreamsBackend, scenario: Scenario
) -> set[Identity]:
    # A new judge: the judge of a search plays no more after a hang.
    judge = Judge(subject, backend, ScheduleChoice("default"), _SEED)
    return {*judge.judge_schedule(scenario, DEFAULT_SCHEDULE).violations}
