"""Factors that no number of the scenario explains, or that roundings hide."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.bases.main_grads import (
    AveragedMainGrads,
    Bucket,
    MainGrads,
)
from syncverify.subjects.bugbank.numerics.factors import (
    DividesByElements,
    ReadsHalfOfFactor,
    ScalesInEveryMicroBatch,
)
from syncverify.subjects.bugbank.numerics.sums import ReducesFirstAxisInBfloat16
from tests.programs import violations

Shapes = tuple[tuple[int, ...], ...]


class FactorOfEachElement(MainGrads):
    """Multiplies the elements by factors of their own, which are no powers of two."""

    def reduce(self, bucket: Bucket) -> None:
        super().reduce(bucket)
        bucket.buffer.mul_(torch.linspace(0.31, 0.7, bucket.buffer.numel()))


class DividesBeforeItAdds(AveragedMainGrads):
    """Each micro-batch divides what has accumulated before, and not its own gradient."""

    def on_accumulated(self, slot: torch.Tensor, parameter: nn.Parameter) -> None:
        if self.moved[parameter]:
            slot.div_(math.prod(group.size() for group in self.groups_of(parameter)))
        super().on_accumulated(slot, parameter)

    def divisor(self, bucket: Bucket) -> int:
        return 1


def summaries(
    subject: type[Any],
    *shapes: tuple[int, ...],
    dtype: str = "float32",
    mesh: tuple[int, ...] = (2,),
    count: int = 1,
) -> dict[str, str]:
    """Play a step; return the cause of each wrong gradient, with its summary."""
    names, placements = ("dp", "tp")[: len(mesh)], ("R",) * len(mesh)
    specs = tuple(
        ParameterSpec(f"p{n}", shape, placements, dtype)
        for n, shape in enumerate(shapes)
    )
    scenario = Scenario(MeshSpec(mesh, names), specs, (count,), 2**20)
    return {
        each.cause: each.summary
        for each in violations(subject, scenario)
        if each.property == "gradient_equals_reference"
    }


@pytest.mark.parametrize(("shapes", "divisor"), [(((), (2,)), 3), (((4, 3), (1,)), 13)])
def test_a_bucket_names_the_number_of_its_elements(
    shapes: Shapes, divisor: int
) -> None:
    ((cause, summary),) = summaries(DividesByElements, *shapes).items()
    assert cause == "scaled"
    assert (
        f": its sum is divided by {divisor}, the number of elements that are reduced at "
    ) in summary
    assert summary.endswith(", and not by 2")


@pytest.mark.parametrize(("mesh", "dtype"), [((2,), "bfloat16")])
@pytest.mark.parametrize(
    ("subject", "end"),
    [
        (ScalesInEveryMicroBatch, "in every micro-batch"),
        (DividesBeforeItAdds, "in every micro-batch, before the next one is added"),
    ],
)
def test_divisions_in_each_micro_batch_may_round(
    mesh: tuple[int, ...], dtype: str, subject: type[Any], end: str
) -> None:
    ranks = math.prod(mesh)
    ((cause, summary),) = summaries(
        subject, (17,), (), dtype=dtype, mesh=mesh, count=4
    ).items()
    assert cause == "scaled"
    assert f"it is divided by {ranks}, " in summary
    assert summary.endswith(f", {end}")


@pytest.mark.parametrize(
    ("shapes", "names"), [(((3,),), "'p0'"), (((), (), ()), "'p0', 'p1', 'p2'")]
)
def test_several_elements_tell_any_factor(shapes: Shapes, names: str) -> None:
    ((cause, summary),) = summaries(
        ReadsHalfOfFactor, *shapes, dtype="bfloat16", mesh=(3,)
    ).items()
    factor = f"every element of {names} is multiplied by one factor, about -3.04e-13"
    assert cause == "scaled"
    assert summary.endswith(factor)


@pytest.mark.parametrize(
    ("subject", "shapes", "dtype", "mesh"),
    [
        (ReadsHalfOfFactor, ((),), "bfloat16", (3,)),
        (ReadsHalfOfFactor, ((2,),), "bfloat16", (3,)),
        (FactorOfEachElement, ((7,),), "float32", (2,)),
        (FactorOfEachElement, ((), (), ()), "float32", (2,)),
        (FactorOfEachElement, ((7,),), "bfloat16", (2,)),
    ],
)
def test_few_elements_or_other_factors_tell_none(
    subject: type[Any], shapes: Shapes, dtype: str, mesh: tuple[int, ...]
) -> None:
    assert [*summaries(subject, *shapes, dtype=dtype, mesh=mesh)] == ["unexplained"]


def test_a_sum_of_fractions_is_rounded_too() -> None:
    """The second parameter's numbers are below 1: it is no whole number that is exact."""
    found = summaries(ReducesFirstAxisInBfloat16, (), (), (), mesh=(2, 2))
    assert [*found] == ["rounded"]
