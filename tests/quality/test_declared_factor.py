"""A declared divide factor holds on each group, also on one of one rank."""

import pytest
import torch
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.bugbank.bases.placements import local
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.errors import UsageError
from syncverify.report.hints import hint
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.programs import identities, violations

FACTOR = 4


class Divides(PlainGrads):
    """Divides each sum by the declared factor."""

    capabilities = Capabilities(varying_accumulations=True, divide_factor=FACTOR)
    fewest_ranks = 1

    @override
    def reduce(self, gradient: torch.Tensor) -> None:
        super().reduce(gradient)
        if not isinstance(gradient, DTensor):
            return
        mesh = gradient.device_mesh
        sizes = [
            mesh.size(axis)
            for axis, placement in enumerate(gradient.placements)
            if placement.is_replicate()
        ]
        if sizes and max(sizes) >= self.fewest_ranks:
            local(gradient).div_(FACTOR)


class DropsTheFactorOfOneRank(Divides):
    """Leaves a gradient as it is where no rank sends anything."""

    fewest_ranks = 2


def of(shape: tuple[int, ...], *placements: str) -> Scenario:
    """Return a step of one parameter on a mesh of this shape."""
    names = ("dp", "tp")[: len(shape)]
    return Scenario(
        MeshSpec(shape, names), (ParameterSpec("w", (4,), placements),), (2,), 64
    )


ONE_RANK = [of((1,), "R"), of((2, 1), "S0", "R")]
SEVERAL = [of((2,), "R"), of((2, 2), "R", "R"), of((2, 2), "S0", "S0")]


@pytest.mark.parametrize("scenario", ONE_RANK)
def test_a_factor_that_is_dropped_on_one_rank_is_found(scenario: Scenario) -> None:
    first, *_ = violations(DropsTheFactorOfOneRank, scenario)
    assert first.cause == "scaled"
    assert "divided by 1 or not at all, and the contract divides by 4" in first.summary
    assert hint(first.cause, first.evidence) == (
        "divide each gradient that has a replicated axis once by the declared factor, also on "
        "axes of one rank; others are not divided"
    )


@pytest.mark.parametrize("scenario", SEVERAL)
def test_the_defect_shows_on_one_rank_alone(scenario: Scenario) -> None:
    assert identities(DropsTheFactorOfOneRank, scenario) == set()


@pytest.mark.parametrize("scenario", [*ONE_RANK, *SEVERAL])
def test_a_right_division_is_silent(scenario: Scenario) -> None:
    assert identities(Divides, scenario) == set()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"divide_factor": 3}, "expected `divide_factor` of a contract as 0 or 2 or 4 or 8 or 16, got 3"),
        ({"divide_factor": 2, "reduction": "mean"}, "expected `reduction` of a contract as 'sum' beside a divide_factor, got 'mean'"),
    ],
)  # fmt: skip
def test_a_factor_that_rounds_or_has_two_meanings_is_refused(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        Capabilities(**fields)
    assert str(caught.value) == message
