"""The causes of diverging ranks are distinguished, and correct twins pass."""

import re
from typing import Any

import pytest

from syncverify.backends.fake import FakeBackend
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entry_of
from syncverify.judge.properties import check
from syncverify.judge.violation import Violation
from syncverify.report.evidence import details
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from tests.quality.planted.bank import AGREE, ONCE, VALUE
from tests.quality.planted.divergence_bank import DIVERGENCES

pytestmark = pytest.mark.slow


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
    ("entry_id", "cap_bytes", "with_data", "without_data", "says"),
    DIVERGENCES,
    ids=[entry_of(case[0]).subject.__name__ for case in DIVERGENCES],
)
def test_defect_is_named_and_its_twin_is_right(
    entry_id: str,
    cap_bytes: int,
    with_data: tuple[str, str],
    without_data: tuple[str, str] | None,
    says: str,
) -> None:
    defect, twin = entry_of(entry_id).subject, entry_of(entry_id).twin
    first, *others = violations(SimBackend(), defect, cap_bytes)
    assert first.identity == with_data
    assert re.search(
        says,
        "\n".join([first.summary, *(each.words for each in details(first.evidence))]),
    )
    assert {each.property for each in others} <= {VALUE, AGREE, ONCE}
    assert violations(SimBackend(), twin, cap_bytes) == []
    if without_data is not None:
        faked, *_ = violations(FakeBackend(), defect, cap_bytes)
        assert faked.identity == without_data
        assert violations(FakeBackend(), twin, cap_bytes) == []


def test_endless_run_ends_at_the_same_step_every_time() -> None:
    scenario, subject = (
        two_parameters(1),
        resolve(entry_of("polls-for-absent-rank").subject),
    )
    one, other = (SimBackend().run(scenario, subject) for _ in range(2))
    assert one.fault == other.fault
    assert [own.trace for own in one.ranks] == [own.trace for own in other.ranks]
