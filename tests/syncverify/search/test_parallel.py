"""Several processes search as one."""

import signal
from contextlib import closing
from typing import Any

import pytest

from syncverify.errors import InternalError
from syncverify.playing.choice import open_backend
from syncverify.processes import calls
from syncverify.processes.forked_process import start
from syncverify.processes.supervised import Supervised
from syncverify.scenario.settings import Settings
from syncverify.search.result import SearchResult
from syncverify.search.search import search
from syncverify.search.sharded_search import crew_of
from syncverify.subjects.subject import resolve
from tests.syncverify.search.search_searches import Listening
from tests.syncverify.search.search_subjects import Doubles, Naive

pytestmark = pytest.mark.slow


def look(
    subject: Any,
    *,
    examples: int = 10,
    heard: Listening | None = None,
    stop_at_first: bool = False,
) -> SearchResult:
    settings = Settings(
        ranks=2, examples=examples, seed=0, jobs=2, stop_at_first=stop_at_first
    )
    resolved = resolve(subject)
    crew = crew_of(settings)
    assert crew is not None
    with closing(open_backend("sim", resolved)) as backend:
        listening = heard or Listening()
        return search(resolved, backend, settings, listening, crew=crew)


@pytest.mark.long
def test_same_seed_and_jobs_same_result() -> None:
    heard = Listening()
    one, other = look(Doubles, examples=5, heard=heard), look(Doubles, examples=5)
    assert one.violations == other.violations
    assert one.violations
    assert one.coverage.table() == other.coverage.table()
    assert one.num_examples == 5
    played = [count for kind, _, count in heard.events if kind == "played"]
    assert played == [1, 2, 3, 4, 5]
    for identity in (each.violation.identity for each in one.violations):
        first, last = ("found", identity, 1), ("shrunk", identity, 1)
        assert heard.events.index(first) < heard.events.index(last)


@pytest.mark.long
def test_the_first_violation_of_any_process_ends_all_explorations() -> None:
    heard = Listening()
    result = look(Doubles, examples=10_000, heard=heard, stop_at_first=True)
    assert 1 <= result.num_examples < 10_000
    assert {kind for kind, *_ in heard.events} >= {"found", "shrunk"}
    assert result.violations


@pytest.mark.slow
def test_a_process_that_dies_is_a_fault_of_the_harness_and_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[Supervised] = []

    def start_two(module: str) -> Supervised:
        started.append(start(module))
        return started[-1]

    class Kills(Listening):
        def played(self, num_examples: int, num_violations: int) -> None:
            started[1].signal(signal.SIGKILL)  # again and again: it may be gone

    monkeypatch.setattr(calls, "start", start_two)
    # The process may die before it says which scenario it plays.
    with pytest.raises(
        InternalError, match=r"^process 1 ended by signal 9($|; it played)"
    ):
        look(Naive, examples=1000, heard=Kills())
    assert [worker.has_ended() for worker in started] == [True, True]
