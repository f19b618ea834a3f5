"""Missing waits, one at a time, and the very gradients that they lead to."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from syncverify.explain.case import Case
from syncverify.explain.witness.witness_search import find_witness
from syncverify.judge.properties import check
from syncverify.judge.reference import reference
from syncverify.playing.program.changes import GRADIENT_SCALE
from syncverify.playing.sim import SimBackend
from syncverify.report.evidence import order_text
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation, NoWitness, Witness
from syncverify.subjects.subject import Subject

SPEC = ParameterSpec("p0", (2,), ("R",))
SCENARIO = Scenario(MeshSpec((2,), ("dp",)), (SPEC,), (2, 2), 64)
ONE_STEP = Scenario(MeshSpec((2,), ("dp",)), (SPEC,), (2,), 64)
ORACLE = reference(SCENARIO, Capabilities())


class Right:
    """Reduces `.grad` on a side stream, through a flat copy."""

    def __init__(self, groups: Any, _cap: float, _accumulations: int) -> None:
        (self.parameter,) = [p for group in groups for p in group]

    def bind(self) -> None:
        self.side, self.other = torch.cuda.Stream(), torch.cuda.Stream()
        self.parameter.grad = torch.zeros_like(self.parameter)
        self.gradient = self.parameter.grad.to_local()

    def wait(self) -> None:
        self.fork()
        with torch.cuda.stream(self.side):
            self.reduce()
        self.join()

    def fork(self) -> None:
        self.side.wait_stream(torch.cuda.current_stream())

    def reduce(self) -> None:
        dist.all_reduce(self.gradient, async_op=True).wait()

    def join(self) -> None:
        torch.cuda.current_stream().wait_stream(self.side)

    def zero_grad(self) -> None:
        self.gradient.zero_()

    def unbind(self) -> None:
        self.parameter.grad = None


class LaunchDoesNotWait(Right):
    def fork(self) -> None: ...


class CopyDoesNotWait(LaunchDoesNotWait):
    def reduce(self) -> None:
        flat = self.gradient.clone()
        dist.all_reduce(flat)
        self.gradient.copy_(flat)


class NobodyWaits(Right):
    def join(self) -> None: ...


class ZeroedElsewhere(Right):
    def zero_grad(self) -> None:
        with torch.cuda.stream(self.other):
            self.gradient.zero_()
        torch.cuda.current_stream().wait_stream(self.other)


class ZeroedLate(Right):
    def zero_grad(self) -> None:
        self.other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.other):
            self.gradient.zero_()


class DropsATemporary(Right):
    def reduce(self) -> None:
        super().reduce()
        with torch.cuda.stream(self.other):
            factor = torch.ones(2)
        self.side.wait_stream(self.other)
        self.gradient.mul_(factor)


class HoldsATemporary(DropsATemporary):
    def reduce(self) -> None:
        Right.reduce(self)
        with torch.cuda.stream(self.other):
            factor = torch.ones(2)
        self.side.wait_stream(self.other)
        self.gradient.mul_(factor)
        factor.record_stream(self.side)


class ReducesTwice(Right):
    """The second reduction is on another communicator, of this rank alone."""

    def reduce(self) -> None:
        alone = dist.new_group(
            [dist.get_rank()], use_local_synchronization=True, backend="simulated"
        )
        first = dist.all_reduce(self.gradient, async_op=True)
        dist.all_reduce(self.gradient, group=alone, async_op=True).wait()
        first.wait()


class Harmless(NobodyWaits):
    """Nothing waits for a write of the values that are there already."""

    def reduce(self) -> None:
        super().reduce()
        torch.cuda.default_stream().wait_stream(self.side)
        self.gradient.mul_(1)


class ClearsWhatIsDropped(Right):
    """Memory of another stream's pool is cleared, and dropped in the same breath."""

    def reduce(self) -> None:
        super().reduce()
        with torch.cuda.stream(self.other):
            scratch = torch.ones(2)
        self.side.wait_stream(self.other)
        scratch.zero_()


class ExchangesInBetween(Right):
    """Nothing waits for a tensor that is no gradient; ranks meet elsewhere meanwhile."""

    def bind(self) -> None:
        super().bind()
        self.elsewhere = dist.new_group([0, 1])

    def reduce(self) -> None:
        super().reduce()
        noise = torch.zeros(2)
        work = dist.all_reduce(noise, async_op=True)
        if dist.get_rank() == 1:
            work.wait()
        dist.all_reduce(torch.zeros(1), group=self.elsewhere)
        with torch.cuda.stream(self.other):
            noise.mul_(1)
        work.wait()
        self.side.wait_stream(self.other)


def witnesses(subject: Subject, scenario: Scenario = SCENARIO) -> dict[str, Any]:
    backend = SimBackend()
    run = backend.run(scenario, subject)
    assert run.fault is None, run.fault
    found = check(scenario, run, subject.capabilities)
    return {
        violation.cause: find_witness(
            Case(FoundViolation(violation, scenario), subject, backend)
        )
        for violation in found
    }


def of(made: Callable[..., Any], **promised: Any) -> Subject:
    return Subject(made.__name__, made, Capabilities(**promised))


def own(step: int, rank: int = 0, micro_batches: tuple[int, ...] = (0, 1)) -> Any:
    return ORACLE.local(SPEC, rank, step, micro_batches)


def only(found: dict[str, Any], cause: str) -> Witness:
    assert set(found) == {cause}
    assert isinstance(found[cause], Witness)
    return found[cause]


LATER, MISSING = "second runs before first on rank 0", "of rank 0 is missing"
NEVER = "it is rank 0's own gradient: it was never reduced"
STILL = "it still contains the reduced gradient of step 0, scaled by the optimizer"
TOTAL = own(0) + own(0, 1)
# By subject: the cause of the violation, the order that shows harm, the step of the wrong
# gradient, the wrong gradient, and its diagnosis.
DEFECTS: dict[Any, tuple[str, str, int, Any, str]] = {
    LaunchDoesNotWait: ("reduced_before_accumulated", LATER, 0, TOTAL - own(0, 0, (1,)),
        f"micro-batch 1 {MISSING}"),
    CopyDoesNotWait: ("accumulated_unordered", LATER, 0, TOTAL - own(0, 0, (1,)),
        f"micro-batch 1 {MISSING}"),
    NobodyWaits: ("read_before_reduced", LATER, 0, own(0), NEVER),
    ReducesTwice: ("collectives_overlap", LATER, 0, own(0), NEVER),
    ZeroedElsewhere: ("zeroed_in_flight", LATER, 1,
        own(1) + own(1, 1) + TOTAL * GRADIENT_SCALE, STILL),
    ZeroedLate: ("used_before_zeroed", LATER, 1,
        own(1) + own(1, 1) - own(1, 0, (0,)), f"micro-batch 0 {MISSING}"),
    DropsATemporary: ("freed_in_use", "second is written on rank 0 before first has used it",
        0, own(0) * math.nan, "it contains inf or nan"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("made", DEFECTS, ids=lambda made: made.__name__)
def test_each_missing_wait_leads_to_its_wrong_gradient(made: Any) -> None:
    cause, order, step, observed, why = DEFECTS[made]
    witness = only(witnesses(of(made)), cause)
    assert order_text(witness) == order
    assert witness.outcome == (
        f"gradient of 'p0' on rank 0, step {step} is wrong: {why}"
    )
    assert witness.expected == (own(step) + own(step, 1)).tolist()
    # By their texts, as NaN is not equal to itself.
    assert repr(witness.observed) == repr(observed.tolist())


@pytest.mark.parametrize("made", [Right, HoldsATemporary])
def test_what_is_ordered_has_no_witness(made: Any) -> None:
    assert witnesses(of(made)) == {}


@pytest.mark.long
def test_a_race_that_does_no_harm_is_said_to_do_none() -> None:
    found = witnesses(of(Harmless), ONE_STEP)
    assert found == {"read_before_reduced": NoWitness(14)}


def test_harm_that_is_done_to_others_is_not_looked_for_here() -> None:
    found = witnesses(of(ClearsWhatIsDropped))
    written = (
        "the late use of the memory only writes to it: the harm is done to the next owner "
        "of the memory"
    )
    assert found == {"freed_in_use": NoWitness(2, (written,))}


@pytest.mark.slow
def test_an_order_in_which_a_simulated_host_blocks_is_not_taken_for_harmless() -> None:
    (found,) = witnesses(of(ExchangesInBetween), ONE_STEP).values()
    assert isinstance(found, NoWitness)
    (reason,) = found.reasons
    assert reason == (
        "1 more could not be played to the end: the simulated host blocks before the late "
        "work could run"
    )


@pytest.mark.long
def test_another_defect_is_not_taken_for_what_an_order_leads_to() -> None:
    """The values are wrong in every order, and in the same way."""

    class HarmlessAndTripled(Harmless):
        def fork(self) -> None:
            self.gradient.mul_(3)
            super().fork()

    witness = witnesses(of(HarmlessAndTripled), ONE_STEP)["read_before_reduced"]
    assert order_text(witness) == "everything runs in the order in which it was queued"
