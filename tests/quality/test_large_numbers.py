"""One large number at a time: defects of widths, chunks, rings and counters show."""

from typing import Any

import pytest
import torch

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.in_wait import ReducesInWait
from syncverify.judge.decoding import explain
from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.properties import check
from syncverify.judge.reference import reference
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import FEATURES, HUGE, VAST
from syncverify.scenario.features import features_of
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.strategies.enlarged_scenarios import _twice, _with_parameters
from syncverify.subjects.subject import resolve
from syncverify.verification.verify import verify
from tests.programs import identities
from tests.quality.planted import large_numbers
from tests.quality.planted.first_drawn import first_drawn

PLAIN_STEPS = Capabilities(varying_accumulations=True)
SMALL = Capabilities(
    varying_accumulations=True,
    outside=frozenset(
        {"buckets=3 groups", *(str(each) for each in FEATURES if each.topic == "size")}
    ),
)
DEFECTS = [
    (large_numbers.MasksGradients, ("size", "many parameters")),
    (large_numbers.SendsWholeChunks, ("size", "many elements")),
    (large_numbers.SkipsAfterWarmUp, ("size", "many steps")),
    (large_numbers.CountsInThreeBits, ("size", "many micro-batches")),
    (large_numbers.KnowsTwoGroups, ("buckets", "3 groups")),
]


def of(
    ranks: int, count: int, numel: int, cap_bytes: int = 2**23, steps: int = 1
) -> Scenario:
    """Return plain steps of `count` replicated parameters of `numel` elements."""
    weights = tuple(ParameterSpec(f"w{n}", (numel,), ("R",)) for n in range(count))
    return Scenario(MeshSpec((ranks,), ("dp",)), weights, (1,) * steps, cap_bytes)


# A search keeps a scenario for each of these sizes. The first scenario does not show the
# defect, the second one does.
COSTLY = [
    (
        large_numbers.SendsWholeLargeChunks, ReducesInWait, "huge parameter",
        of(2, 1, HUGE), of(2, 1, HUGE + 1),
    ),
    (
        large_numbers.SendsLargeOnesNarrow, large_numbers.SendsLargeOnesWhole,
        "huge parameter", of(2, 1, 2**14), of(2, 1, HUGE),
    ),
    (
        large_numbers.SendsMebibytesNarrow, large_numbers.SendsLargeOnesWhole,
        "vast parameter", of(2, 1, 2 * HUGE), of(2, 1, VAST),
    ),
    (
        large_numbers.MasksBuckets, large_numbers.MasksManyBuckets, "many buckets",
        of(2, 16, 3, 12), of(2, 17, 3, 12),
    ),
    (
        large_numbers.FoldsThreeAndOne, large_numbers.FoldsAll, "many ranks",
        of(4, 1, 3), of(5, 1, 3),
    ),
    (
        large_numbers.SkipsFromTenthStep, ReducesInWait, "long training",
        of(2, 1, 3, steps=10), of(2, 1, 3, steps=12),
    ),
]  # fmt: skip


@pytest.mark.slow
def test_each_defect_shows_in_a_default_search() -> None:
    missing = dict(DEFECTS)

    def shows_the_last(scenario: Scenario) -> bool:
        features = set(features_of(scenario))
        # Without its feature a defect is silent, as a test below says.
        for defect in [d for d, feature in missing.items() if feature in features]:
            if identities(defect, scenario):
                del missing[defect]
        return not missing

    first_drawn(shows_the_last, PLAIN_STEPS, 500)
    assert missing == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defect", "twin", "size", "below", "large"),
    COSTLY,
    ids=[each.__name__ for each, *_ in COSTLY],
)
def test_costly_size_shows_its_defect_alone(
    defect: type[Any], twin: type[Any], size: str, below: Scenario, large: Scenario
) -> None:
    assert ("size", size) in set(features_of(large))
    assert identities(defect, below) == set()
    assert identities(defect, large) != set()
    assert identities(twin, large) == set()


def test_more_parameters_than_usual_come_with_several_steps() -> None:
    """A defect of later steps that eight parameters do not show, nor one step of more."""
    subject = resolve(large_numbers.WrapsAfterFirstStep)
    weights = tuple(ParameterSpec(f"p{n}", (2,), ("R",)) for n in range(2))
    small = Scenario(MeshSpec((2,), ("dp",)), weights, (2,), 16)
    for scenario, is_wrong in (
        (small, False),
        (_with_parameters(small, 9), False),
        (_with_parameters(_twice(small), 9), True),
    ):
        run = SimBackend().run(scenario, subject)
        assert bool(check(scenario, run, subject.capabilities)) == is_wrong


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("defect", "feature"), DEFECTS, ids=[defect.__name__ for defect, _ in DEFECTS]
)
def test_defect_is_right_in_small_scenarios(
    defect: type[Any], feature: tuple[str, str]
) -> None:
    report = verify(defect, contract=SMALL, examples=60, seed=0)
    assert feature[1] not in report.coverage.get(feature[0], {})


def test_a_wrong_sum_of_many_micro_batches_is_explained() -> None:
    """A factor for each of forty micro-batches on four ranks is beyond 64 bits."""
    weight = ParameterSpec("w", (17,), ("R",))
    scenario = Scenario(MeshSpec((4,), ("dp",)), (weight,), (40,), 2**20)
    oracle = reference(scenario, Capabilities())
    sums = ExpectedGradient(oracle, weight, 0, 0, 40, (0, 1, 2, 3), 1)
    assert explain(sums, (sums.value() * 5).to(torch.float32)) is not None
