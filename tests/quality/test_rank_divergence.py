"""Ranks that part ways are told from each other by cause, and correct twins pass."""

import re
from typing import Any

import pytest
from planted import rank_divergence as planted
from planted.bank import AGREE, MATCH, ONCE, ORDER, VALUE, WAITS
from planted.view_buckets import ViewBuckets

from syncverify.backends.fake import FakeBackend
from syncverify.backends.sim import SimBackend
from syncverify.properties import check
from syncverify.scenario import MeshSpec, ParameterSpec, Scenario
from syncverify.subject import resolve
from syncverify.violation import Violation

pytestmark = pytest.mark.slow

# Defect, its twin, bytes of the cap, and the first violation with what the report says:
# where collectives exchange data, and where they do not.
CASES: list[tuple[Any, ...]] = [
    (
        planted.SwapsBuckets, planted.ReducesInWait, 1,
        (MATCH, "bucket_mismatch"), (MATCH, "bucket_mismatch"),
        r"met in one collective and disagree: p1 at byte 0 on rank 0 meets p0 at byte 0 on rank 1",
    ),
    (
        planted.ReducesUsedParameters, planted.ReducesEachParameter, 1,
        (MATCH, "bucket_mismatch"), (MATCH, "bucket_mismatch"),
        r"p1 at byte 0 on rank 0 meets p0 at byte 0 on rank 1",
    ),
    (
        planted.SkipsBucketsByItself, planted.ReducesInWait, 1,
        (WAITS, "deadlock"), (MATCH, "collective_missing"),
        r"rank 0: waits for rank 1 in all_reduce #1 of p0 over ranks \[0, 1\], on .* in launch",
    ),
    (
        planted.PollsForAbsentRank, planted.PollsForCompletion, 1,
        (WAITS, "step_bound"), None,  # works of torch's fake group are never complete
        r"rank 0: polls for rank 1 in .* of p0 .*; polls at planted/.*\.py:\d+ in finish",
    ),
    (
        planted.CutsAtItsOwnCap, ViewBuckets, 1024,
        (MATCH, "collective_mismatch"), (MATCH, "collective_mismatch"),
        r"rank 1: all_reduce SUM of 4 x float32 over ranks \[0, 1\], at planted/",
    ),
    (
        planted.TellsNeighbourOneByOne, planted.TellsNeighbour, 1,
        (ORDER, "opposing_messages"), None,  # no data, no batches
        r"rank 0: send of 1 x float32 over ranks \[0, 1\], at planted/.* in exchange; then",
    ),
    (
        planted.CountsAfterwardsAsWell, planted.CountsFirst, 1,
        (MATCH, "collective_mismatch"), (MATCH, "collective_mismatch"),
        r"rank 0: all_to_all_single of 2 x int64 over ranks \[0, 1\], at planted/",
    ),
]  # fmt: skip


def two_parameters(cap_bytes: int) -> Scenario:
    return Scenario(
        mesh=MeshSpec((2,), ("dp",)),
        parameters=(
            ParameterSpec("p0", (4,), ("R",)),
            ParameterSpec("p1", (4,), ("R",)),
        ),
        accumulations=(1,),
        bucket_cap_bytes=cap_bytes,
    )


def violations(backend: Any, subject: type[Any], cap_bytes: int) -> list[Violation]:
    scenario, found = two_parameters(cap_bytes), resolve(subject)
    return check(scenario, backend.run(scenario, found), found.capabilities)


@pytest.mark.parametrize(
    ("defect", "twin", "cap_bytes", "with_data", "without_data", "says"),
    CASES,
    ids=[case[0].__name__ for case in CASES],
)
def test_defect_is_named_and_its_twin_is_right(
    defect: type[Any],
    twin: type[Any],
    cap_bytes: int,
    with_data: tuple[str, str],
    without_data: tuple[str, str] | None,
    says: str,
) -> None:
    first, *others = violations(SimBackend(), defect, cap_bytes)
    assert first.identity == with_data
    assert re.search(says, "\n".join([first.summary, *first.evidence["details"]]))
    assert {each.property for each in others} <= {VALUE, AGREE, ONCE}
    assert violations(SimBackend(), twin, cap_bytes) == []
    if without_data is not None:
        faked, *_ = violations(FakeBackend(), defect, cap_bytes)
        assert faked.identity == without_data
        assert violations(FakeBackend(), twin, cap_bytes) == []


def test_endless_run_ends_at_the_same_step_every_time() -> None:
    scenario, subject = two_parameters(1), resolve(planted.PollsForAbsentRank)
    one, other = (SimBackend().run(scenario, subject) for _ in range(2))
    assert one.fault == other.fault
    assert [own.events for own in one.ranks] == [own.events for own in other.ranks]
