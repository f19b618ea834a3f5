"""Defects that need some timing are found with schedules, and only with them."""

import itertools
import re
from typing import Any

import pytest

from studies.redteam.right.waits import PollsAlone, QueriesAnEvent
from syncverify.judge.properties import check
from syncverify.playing.sim import SimBackend
from syncverify.report.run import explanation_of
from syncverify.scenario.replay_token import decode
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Schedule, ScheduleChoice
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Judge
from syncverify.search.shrinking import simplify_schedule
from syncverify.sim.turns.decisions import Decisions, SchedulePolicy
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets
from syncverify.subjects.subject import Subject, resolve
from tests.programs import report_on
from tests.quality.planted import timing

pytestmark = pytest.mark.slow
LEAST = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (2,), ("R",)),), (1,), 64
)
DEFECTS = {
    timing.FallsThrough: (
        "gradient_equals_reference",
        "rank_contribution_missing",
        # Too early, or too soon after.
        r"rank \d moves next|is_completed\(\) tells rank \d that it is not done yet",
    ),
    timing.FirstComeIsRankZero: (
        "collectives_match_across_ranks",
        "collective_mismatch",
        "rank 1 moves next",
    ),
}
NOT_YET = r"query\(\) tells rank \d that it is not done yet"
CORRECT = [
    timing.AsksThenWaits,
    PollsAlone,
    timing.FirstComeIsFirst,
    timing.ReducesInSeededOrder,
    timing.WaitsInRandomOrder,
    timing.WaitsInOrderOfAddresses,
]


@pytest.fixture(autouse=True)
def shrinks_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrinking takes most of the time of a search, and these tests are not about it."""
    monkeypatch.setattr("syncverify.search.shrinking._MAX_SHRINK_RUNS", 40)


def searched(subject: type[Any], identity: tuple[str, str]) -> FoundViolation:
    """Return the one violation of a search, which has the given one as a consequence."""
    (found,) = report_on(subject, ranks=2, schedules="drawn", examples=10).violations
    assert identity in {(one.property, one.cause) for one in found.related}
    return found


def explored(
    subject: type[Any], identity: tuple[str, str], schedules: str
) -> FoundViolation:
    """Play schedules of the least scenario only; the first that fails ends it."""
    choice = ScheduleChoice.parse(schedules)
    judge = Judge(resolve(subject), SimBackend(), choice, 0)
    failing = judge.judge_scenario(LEAST, lambda _: DEFAULT_SCHEDULE)
    return simplify_schedule(judge, failing.violations[identity])


# A whole search is done for one of them: Hypothesis shrinks long schedules for seconds.
@pytest.mark.long
@pytest.mark.parametrize(
    ("subject", "schedules"),
    [
        (timing.FallsThrough, "drawn"),
        *itertools.product(DEFECTS, ["all", "pct:20"]),
    ],
)
def test_defect_of_timing_is_found_and_replays(
    subject: type[Any], schedules: str
) -> None:
    name, cause, meaning = DEFECTS[subject]
    if schedules == "drawn":
        found = searched(subject, (name, cause))
    else:
        found = explored(subject, (name, cause), schedules)
    assert found.scenario.mesh.shape == (2,)
    (needed,) = (d.meaning for d in found.decisions if d.chosen)
    assert re.fullmatch(meaning, needed)
    assert f": {needed}\n" in explanation_of(found, subject="S", backend="sim").text()
    reproducer = decode(found.token)
    decisions = Decisions(SchedulePolicy(reproducer.schedule))
    again = SimBackend().run(reproducer.scenario, resolve(subject), decisions)
    assert tuple(decisions.taken) == found.decisions[: len(decisions.taken)]
    assert found.violation in check(
        reproducer.scenario, again, resolve(subject).capabilities
    )


@pytest.mark.parametrize(("given_up", "right"), [
    (timing.GivesUpAfterAThousand, timing.WaitsAfterAThousand),
    (timing.GivesUpAfterAMinute, timing.RaisesAfterAMinute),
])  # fmt: skip
def test_a_host_that_gives_up_is_found(given_up: type[Any], right: type[Any]) -> None:
    """All schedules of few "not yet" are silent; nothing is slept through."""
    defect, twin = resolve(given_up), resolve(right)

    def played(subject: Subject, choice: int) -> set[str]:
        decisions = Decisions(
            SchedulePolicy(Schedule((0, 0, choice, choice, choice, choice)))
        )
        run = SimBackend().run(LEAST, subject, decisions)
        return {each.property for each in check(LEAST, run, subject.capabilities)}

    assert [played(defect, choice) for choice in (0, 1, 2)] == [set()] * 3
    assert "gradient_equals_reference" in played(defect, 3)
    assert played(twin, 3) == set()


@pytest.mark.nightly
@pytest.mark.parametrize("schedules", ["drawn", "all:4"])
@pytest.mark.parametrize("subject", CORRECT)
def test_correct_twin_is_silent(subject: type[Any], schedules: str) -> None:
    assert report_on(subject, ranks=2, schedules=schedules, examples=6).violations == ()


@pytest.mark.long
def test_one_run_is_enough_where_order_cannot_matter() -> None:
    report = report_on(ViewBuckets, ranks=2, schedules="all", examples=5)
    assert report.violations == ()
    assert report.schedules["all: order cannot matter"] == 5
    assert not any("schedules" in line for line in report.explored)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "subject", [timing.ReducesInRandomOrder, timing.ReducesInOrderOfAddresses]
)
def test_what_depends_on_chance_is_found(subject: type[Any]) -> None:
    (found,) = report_on(subject, ranks=2, schedules="drawn", examples=30).violations
    assert found.violation.identity == ("subject_is_deterministic", "acts_otherwise")
    assert "all_reduce SUM" in str(found.violation.evidence)


@pytest.mark.slow
def test_a_subject_that_ignores_not_yet_is_found() -> None:
    (found,) = report_on(
        timing.IgnoresNotYet, ranks=2, schedules="all:10", examples=6
    ).violations
    identity = ("wait_orders_reads_after_reduce", "read_before_reduced")
    assert found.violation.identity == identity
    (needed,) = (d.meaning for d in found.decisions if d.chosen)
    assert re.fullmatch(NOT_YET, needed)


@pytest.mark.long
@pytest.mark.parametrize("schedules", ["drawn", "all:2"])
@pytest.mark.parametrize("subject", [timing.QueriesThenWaits, QueriesAnEvent])
def test_correct_query_is_silent(subject: type[Any], schedules: str) -> None:
    assert report_on(subject, ranks=2, schedules=schedules, examples=6).violations == ()
