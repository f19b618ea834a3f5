"""The causes of diverging ranks are distinguished, and correct twins pass."""

import re

import pytest

from syncverify.backends.fake import FakeBackend
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entry_of
from syncverify.report.evidence import details
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from tests.programs import violations
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
    first, *others = violations(defect, two_parameters(cap_bytes), SimBackend())
    assert first.identity == with_data
    assert re.search(
        says,
        "\n".join([first.summary, *(each.words for each in details(first.evidence))]),
    )
    assert {each.property for each in others} <= {VALUE, AGREE, ONCE}
    assert violations(twin, two_parameters(cap_bytes), SimBackend()) == []
    if without_data is not None:
        faked, *_ = violations(defect, two_parameters(cap_bytes), FakeBackend())
        assert faked.identity == without_data
        assert violations(twin, two_parameters(cap_bytes), FakeBackend()) == []


def test_endless_run_ends_at_the_same_step_every_time() -> None:
    scenario, subject = (
        two_parameters(1),
        resolve(entry_of("polls-for-absent-rank").subject),
    )
    one, other = (SimBackend().run(scenario, subject) for _ in range(2))
    assert one.fault == other.fault
    assert [own.trace for own in one.ranks] == [own.trace for own in other.ranks]
