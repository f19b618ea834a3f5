"""A copy to pinned memory may be late, and so may the copy out of it: a pool of one buffer."""

from typing import Any

import pytest

from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.programs import violations
from tests.quality.planted import host_copies

SCENARIO = Scenario(
    MeshSpec((2,), ("dp",)),
    (ParameterSpec("a", (3,), ("R",)), ParameterSpec("b", (5,), ("R",))),
    (1, 1),
    1,
)
LATE = ("reduce_reads_after_accumulation", "accumulated_unordered")


@pytest.mark.parametrize(
    ("subject", "operator"),
    [
        (host_copies.WritesWhatIsOnItsWay, "aten.copy_"),
        (host_copies.ReadsBeforeItArrives, "aten.mul_"),
        (host_copies.WaitsForTheCopyBefore, "aten.mul_"),
    ],
)
def test_a_late_copy_is_found_with_the_operator_that_comes_too_early(
    subject: type[Any], operator: str
) -> None:
    (found,) = violations(subject, SCENARIO)
    assert (found.property, found.cause) == LATE
    assert "nothing orders aten.copy_" in found.summary
    assert f"in stage before {operator}" in found.summary


@pytest.mark.parametrize(
    "subject",
    [
        host_copies.OnePinnedBuffer,
        host_copies.OrdersBothCopies,
        host_copies.WaitsForItsEvent,
    ],
)
def test_a_copy_that_is_waited_for_is_right(subject: type[Any]) -> None:
    assert violations(subject, SCENARIO) == []
