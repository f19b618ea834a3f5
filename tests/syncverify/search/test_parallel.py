"""Several processes search as one."""

import signal
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from syncverify.backends.choice import open_backend
from syncverify.errors import InternalError, SubjectError
from syncverify.judge.violation import Violation
from syncverify.processes import calls
from syncverify.processes.forked_process import start
from syncverify.processes.supervised import Supervised
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.coverage import Coverage
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.space import Space
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.crews import crew_of
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.search.result import (
    RunStatistics,
    SearchResult,
    SilentProgress,
    merged,
)
from syncverify.search.search import search
from syncverify.search.sharded_search import explore_in_shards
from syncverify.search.shards import Shards
from syncverify.settings import Settings
from syncverify.subjects.subject import resolve
from tests.syncverify.search.search_subjects import Doubles, Naive

pytestmark = pytest.mark.slow


@dataclass
class Listening(SilentProgress):
    num_played: list[int] = field(default_factory=list)
    events: list[tuple[str, Identity]] = field(default_factory=list)

    def played(self, num_examples: int, num_violations: int) -> None:
        self.num_played.append(num_examples)

    def found(self, violation: FoundViolation) -> None:
        self.events.append(("found", violation.violation.identity))

    def shrunk(self, violation: FoundViolation) -> None:
        self.events.append(("shrunk", violation.violation.identity))


def shares_of(settings: Settings) -> list[Settings]:
    return [shard.settings for shard in Shards(b"", "sim", settings)]


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
        return search(
            resolved,
            backend,
            settings,
            listening,
            elsewhere=lambda: explore_in_shards(
                resolved, settings, listening, crew, None
            ),
        )


@pytest.mark.long
def test_same_seed_and_jobs_same_result() -> None:
    heard = Listening()
    one, other = look(Doubles, examples=5, heard=heard), look(Doubles, examples=5)
    assert one.violations == other.violations
    assert one.violations
    assert one.coverage.table() == other.coverage.table()
    assert one.num_examples == 5
    assert heard.num_played == [1, 2, 3, 4, 5]
    for identity in (each.violation.identity for each in one.violations):
        first, last = ("found", identity), ("shrunk", identity)
        assert heard.events.index(first) < heard.events.index(last)


@pytest.mark.long
def test_the_first_violation_of_any_process_ends_all_explorations() -> None:
    heard = Listening()
    result = look(Doubles, examples=10_000, heard=heard, stop_at_first=True)
    assert 1 <= result.num_examples < 10_000
    assert {kind for kind, _ in heard.events} == {"found", "shrunk"}
    assert result.violations


def test_shares_are_equal_and_their_seeds_differ() -> None:
    shares = shares_of(Settings(examples=11, seed=5, jobs=3))
    assert [share.examples for share in shares] == [4, 4, 3]
    assert len({share.random_seed for share in shares}) == 3
    assert len(shares_of(Settings(examples=2, seed=5, jobs=3))) == 2


def test_shards_of_a_campaign_are_the_same_for_any_number_of_workers() -> None:
    settings = Settings(examples=20_000, cluster="local:2")
    shares = shares_of(settings)
    assert settings.random_seed == 0  # the same command goes on
    assert {share.examples for share in shares} == {250}
    assert len({share.random_seed for share in shares}) == 80
    assert shares == shares_of(replace(settings, cluster="tcp://far:8786"))


class MakesNothing:
    """Its instances lack the methods, which shows only when one is made."""

    def __new__(cls, groups: Any, mb: float, count: int) -> Any:
        return object()

    def bind(self) -> None: ...
    def wait(self) -> None: ...
    def zero_grad(self) -> None: ...
    def unbind(self) -> None: ...


@pytest.mark.long
def test_an_error_in_a_process_is_raised_here() -> None:
    with pytest.raises(SubjectError, match=r"lacks bind\(\), wait\(\)"):
        look(MakesNothing)


@pytest.mark.long
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


def found(cause: str, *, ranks: int) -> FoundViolation:
    scenario = Scenario(
        MeshSpec((ranks,), ("dp",)), (ParameterSpec("p0", (), ("R",)),), (1,), 1
    )
    name = "gradient_equals_reference"
    return FoundViolation(Violation(name, cause, "", (), (), {}), scenario)


def result(*entries: FoundViolation, seconds: float = 1.0) -> SearchResult:
    coverage = Coverage(Space(Capabilities(), 4))
    return SearchResult(3, seconds, coverage, list(entries), RunStatistics(1, 2))


def test_of_each_violation_the_smallest_counts() -> None:
    one = result(found("scaled", ranks=3), found("stale", ranks=2))
    other = result(found("scaled", ranks=2), seconds=2.0)
    both = merged([one, other])
    by_cause = {each.violation.cause: each.scenario for each in both.violations}
    assert by_cause["scaled"].mesh.num_ranks == 2
    assert by_cause["stale"].mesh.num_ranks == 2
    assert (both.num_examples, both.seconds) == (6, 2.0)
    assert both.statistics == RunStatistics(2, 4)
