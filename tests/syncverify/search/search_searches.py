"""Searches for tests, with backends that count and that fail."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from syncverify.playing.sim import SimBackend
from syncverify.progress import SilentProgress
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.settings import Settings
from syncverify.search.found_violation import FoundViolation
from syncverify.search.result import SearchResult
from syncverify.search.search import search
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.run import Fault, RankRun, Run


@dataclass
class Counting:
    """The sim backend, and how often it played each scenario."""

    name: str = "sim"
    played: Counter[Scenario] = field(default_factory=Counter)

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        self.played[scenario] += 1
        return SimBackend().run(scenario, subject)


@dataclass
class Failing:
    """A backend on which every run ends in the same fault."""

    name: str
    fault: Fault
    num_runs: int = 0

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        self.num_runs += 1
        ranks = tuple(RankRun() for _ in range(scenario.mesh.num_ranks))
        return Run(self.name, ranks, self.fault)


@dataclass
class Listening(SilentProgress):
    events: list[tuple[str, object, int]] = field(default_factory=list)

    def played(self, num_examples: int, num_violations: int) -> None:
        self.events.append(("played", num_violations, num_examples))

    def found(self, violation: FoundViolation) -> None:
        self.events.append(("found", violation.violation.identity, 1))

    def shrinking(self, identity: tuple[str, str], num_runs: int) -> None:
        self.events.append(("shrinking", identity, num_runs))

    def shrunk(self, violation: FoundViolation) -> None:
        self.events.append(("shrunk", violation.violation.identity, 1))


class Interrupting(SilentProgress):
    """Interrupts a search after some scenarios, as Ctrl-C does; a negative number never does."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.num_played: list[int] = []

    def played(self, num_examples: int, num_violations: int) -> None:
        self.num_played.append(num_examples)
        if 0 <= self.last <= num_examples:
            raise KeyboardInterrupt


def look(
    subject: Any,
    backend: Any = None,
    *,
    seed: int = 0,
    examples: int = 20,
    ranks: int = 2,
    limit: float | None = None,
    progress: Listening | None = None,
    stop_at_first: bool = False,
) -> SearchResult:
    return search(
        resolve(subject),
        backend or SimBackend(),
        Settings(
            ranks=ranks,
            examples=examples,
            seed=seed,
            time_limit_seconds=limit,
            stop_at_first=stop_at_first,
        ),
        progress or Listening(),
    )


def identities(result: SearchResult) -> list[tuple[str, str]]:
    return [found.violation.identity for found in result.violations]
