"""The first violation of a search, where it plays the scenarios that a search plays."""

from typing import Any

from syncverify.scenario.scenario import Scenario
from syncverify.search.first_violation import first_met
from syncverify.search.result import SilentProgress
from syncverify.search.search import search
from syncverify.settings import Settings
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.run import Run
from tests.syncverify.search.search_searches import Failing
from tests.syncverify.search.search_subjects import Naive

SETTINGS = Settings(ranks=4, examples=10, seed=0)


class Noting(Failing):
    """A backend on which nothing fails; it notes the scenarios."""

    def __init__(self) -> None:
        super().__init__("fake", None)  # type: ignore[arg-type]
        self.noted: list[Scenario] = []

    def run(self, scenario: Scenario, subject: Subject) -> Run:
        self.noted.append(scenario)
        return super().run(scenario, subject)


def played(by: Any, *progress: Any) -> list[Scenario]:
    backend = Noting()
    by(resolve(Naive), backend, SETTINGS, *progress)
    return list(dict.fromkeys(backend.noted))


def test_the_first_violation_is_met_in_the_scenarios_of_a_search() -> None:
    assert played(first_met) == played(search, SilentProgress())
