"""The causes of diverging ranks are distinguished, and correct twins pass."""

import re

import pytest

from syncverify.backends.fake import FakeBackend
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.catalogue import entry_of
from syncverify.judge.violation import Violation
from syncverify.report.evidence import details
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from tests.programs import violations
from tests.quality.planted.bank import AGREE, ONCE, VALUE
from tests.quality.planted.divergence_bank import DIVERGENCES, Divergence

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


def words_of(violation: Violation) -> str:
    """Return the explanation of a violation and its details."""
    found = (each.words for each in details(violation.evidence))
    return "\n".join([violation.summary, *found])


every_defect = pytest.mark.parametrize(
    "defect", DIVERGENCES, ids=[each.subject.__name__ for each in DIVERGENCES]
)


@every_defect
def test_defect_is_named(defect: Divergence) -> None:
    first, *others = violations(defect.subject, two_parameters(defect.cap_bytes))
    assert first.identity == defect.with_data
    assert re.search(defect.says, words_of(first))
    assert {each.property for each in others} <= {VALUE, AGREE, ONCE}


@pytest.mark.parametrize(
    "defect",
    [each for each in DIVERGENCES if each.without_data],
    ids=lambda each: each.subject.__name__,
)
def test_defect_is_named_where_no_data_moves(defect: Divergence) -> None:
    scenario, fake = two_parameters(defect.cap_bytes), FakeBackend()
    first, *_ = violations(defect.subject, scenario, fake)
    assert first.identity == defect.without_data
    assert violations(defect.twin, scenario, fake) == []


@every_defect
def test_its_twin_is_right(defect: Divergence) -> None:
    assert violations(defect.twin, two_parameters(defect.cap_bytes)) == []


def test_endless_run_ends_at_the_same_step_every_time() -> None:
    scenario, subject = (
        two_parameters(1),
        resolve(entry_of("polls-for-absent-rank").subject),
    )
    one, other = (SimBackend().run(scenario, subject) for _ in range(2))
    assert one.fault == other.fault
    assert [own.trace for own in one.ranks] == [own.trace for own in other.ranks]
