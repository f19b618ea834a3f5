"""A race is shown in a scenario with a wrong gradient, and a mistake where no other one fits."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from syncverify.explain.case import Case
from syncverify.explain.repair.other_scenarios import with_fewer_readings, with_witness
from syncverify.judge.properties import check
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import (
    FoundViolation,
    NoWitness,
    RelatedViolation,
    Witness,
)
from syncverify.subjects.bugbank.bases.placements import local_grad
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.subject import Subject, resolve
from tests.programs import one_parameter

LONE = one_parameter(1, "p0", ())
BACKEND = SimBackend()
PLAIN = Capabilities()


class SideStreamNotJoined:
    """Sums gradients on a side stream, for which nobody waits."""

    def __init__(self, param_groups: Any, _cap: float, _accumulations: int) -> None:
        self.parameters = [p for group in param_groups for p in group]

    def bind(self) -> None:
        self.side = torch.cuda.Stream()

    def wait(self) -> None:
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            for parameter in self.parameters:
                self.reduce(parameter.grad)

    def reduce(self, gradient: Any) -> None:
        if isinstance(gradient, DTensor):
            dist.all_reduce(gradient.to_local(), group=gradient.device_mesh.get_group())

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def unbind(self) -> None: ...


class HandlesDropped(SideStreamNotJoined):
    """Drops the handles of its reductions: on several ranks each order is wrong."""

    def wait(self) -> None:
        for parameter in self.parameters:
            self.reduce(parameter.grad)

    def reduce(self, gradient: Any) -> None:
        group = gradient.device_mesh.get_group()
        dist.all_reduce(gradient.to_local(), group=group, async_op=True)


class HarmlessWriteNotJoined(SideStreamNotJoined):
    """Writes the same values once more on a side stream."""

    def reduce(self, gradient: Any) -> None:
        gradient.to_local().mul_(1)


def shown(
    made: type[SideStreamNotJoined], *related: RelatedViolation
) -> FoundViolation:
    """Return the race of a subject on one rank, with its witness."""
    subject = Subject(made.__name__, made, PLAIN)
    run = BACKEND.run(LONE, subject)
    (race,) = (e for e in check(LONE, run, PLAIN) if e.evidence.unordered is not None)
    return with_witness(
        Case(FoundViolation(race, LONE, related=related), subject, BACKEND)
    )


@pytest.mark.slow
def test_a_race_on_one_rank_is_shown_on_two() -> None:
    found = shown(SideStreamNotJoined)
    assert isinstance(found.witness, Witness)
    assert found.scenario.mesh.num_ranks == 2
    assert len(found.scenario.parameters) == found.scenario.num_steps == 1


THEN = RelatedViolation(
    "gradient_equals_reference",
    "rank_contribution_missing",
    "it is wrong",
    is_consequence=True,
)


@pytest.mark.slow
def test_a_gradient_that_is_wrong_in_each_order_shows_a_race_that_it_follows() -> None:
    found = shown(HandlesDropped, THEN)
    assert isinstance(found.witness, Witness)
    assert found.scenario.mesh.num_ranks == 2


@pytest.mark.long
def test_a_wrong_gradient_of_other_scenarios_is_not_denied() -> None:
    # No larger scenario of this one shows that gradient; some scenario of the search did.
    found = shown(HarmlessWriteNotJoined, THEN)
    assert isinstance(found.witness, NoWitness)
    assert found.witness.is_elsewhere
    assert not any("no larger scenario" in reason for reason in found.witness.reasons)


@pytest.mark.long
def test_a_gradient_that_is_wrong_in_each_order_may_be_another_defect() -> None:
    assert isinstance(shown(HandlesDropped).witness, NoWitness)


# Several mistakes give one value where numbers agree; a scenario in which they differ is shown.


class DividesByParameters(PlainGrads):
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            local_grad(parameter).div_(len(self.parameters))


class DividesByCount(PlainGrads):
    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            local_grad(parameter).div_(self.required)


SPECS = tuple(ParameterSpec(f"p{n}", (2,), ("R",)) for n in range(2))
ALIKE = Scenario(MeshSpec((2,), ("dp",)), SPECS, (2,), 1 << 20)


def told_apart(subject: type, max_ranks: int) -> FoundViolation:
    found, backend = resolve(subject), SimBackend()
    violations = check(ALIKE, backend.run(ALIKE, found), found.capabilities)
    (violation,) = [each for each in violations if each.cause == "scaled"]
    assert violation.evidence.readings
    return with_fewer_readings(
        Case(FoundViolation(violation, ALIKE, is_smallest=True), found, backend),
        max_ranks,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("subject", "divisor"),
    [
        (DividesByParameters, "divided by 2, the number of parameters"),
        (DividesByCount, "the number of accumulations"),
    ],
)
def test_numbers_that_differ_leave_one_reading(subject: type, divisor: str) -> None:
    entry = told_apart(subject, max_ranks=4)
    assert divisor in entry.violation.summary
    assert entry.violation.evidence.readings == ()
    assert entry.is_smallest


@pytest.mark.slow
def test_a_world_stays_as_small_as_it_was_asked_for() -> None:
    assert told_apart(DividesByParameters, max_ranks=2).scenario.mesh.num_ranks == 2
