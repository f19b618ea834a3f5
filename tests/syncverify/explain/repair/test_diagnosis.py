"""A fix is code in the subject's own names, and was played."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.explain.case import Case
from syncverify.explain.repair import diagnosis
from syncverify.explain.repair.diagnosis import find_fix
from syncverify.explain.repair.game import Game
from syncverify.explain.repair.ran_lines import deciding_lines
from syncverify.explain.repair.source_edit import source_of
from syncverify.playing.program.modules import module_parameters
from syncverify.playing.program.modules.layers import provide_layers
from syncverify.playing.sim import SimBackend
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import Fix, FoundViolation
from syncverify.subjects.bugbank.bases.placements import local_grad
from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads
from syncverify.subjects.bugbank.catalogue import entry_of
from syncverify.subjects.subject import Subject, resolve
from tests.programs import forget_layers, violations

PAIR = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("w", (3,), ("R",)),), (2,), 1 << 20
)
BACKEND = SimBackend()


def case_of(subject: Subject) -> Case:
    first, *_ = violations(subject, PAIR)
    return Case(FoundViolation(first, PAIR), subject, BACKEND)


def fix_of(entry_id: str) -> Fix | None:
    return find_fix(case_of(entry_of(entry_id).defect()))


@pytest.mark.long
@pytest.mark.parametrize(
    ("entry_id", "place", "lines"),
    [
        (
            "final-join-missing",
            "side_streams.py:36 in wait",
            ("  self.join()", "+ torch.cuda.current_stream().wait_stream(self.comm)"),
        ),
        (
            "double-accumulation-division",
            "factors.py:99 in divisor",
            (
                "- return super().divisor(bucket) * self.required",
                "+ return super().divisor(bucket)",
            ),
        ),
    ],
)
def test_the_fix_of_a_defect_is_found(
    entry_id: str, place: str, lines: tuple[str, ...]
) -> None:
    fix = fix_of(entry_id)
    assert fix is not None
    assert str(fix.place).endswith(place)
    assert (fix.lines, fix.max_ranks) == (lines, 4)
    assert fix.num_others > 9
    # The subject is as it was.
    assert violations(entry_of(entry_id).defect(), PAIR)


class DropsHandles(PlainGrads):
    """Sums on a new group, and waits for no sum."""

    capabilities = Capabilities(tensors="local", device="cuda", reduction="sum")

    def bind(self) -> None:
        super().bind()
        self.group = dist.new_group()

    def wait(self) -> None:
        grads = [p.grad for p in self.parameters if p.grad is not None]
        [dist.all_reduce(g, group=self.group, async_op=True) for g in grads]


@pytest.mark.long
def test_a_fix_names_nothing_that_the_harness_holds() -> None:
    fix = find_fix(case_of(resolve(DropsHandles)))
    assert fix is not None
    assert "async_op=True).wait()" in fix.lines[1]


class SendsFullBuckets:
    """Sums a bucket when it is full, and never the last one."""

    def __init__(self, param_groups: Any, cap_mb: float, accumulations: int) -> None:
        self.parameters = [p for group in param_groups for p in group]
        self.cap_bytes = cap_mb * 2**20
        self.required = accumulations

    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        self.bucket: list[Any] = []
        hook = self.count
        self.hooks = [
            p.register_post_accumulate_grad_hook(hook) for p in self.parameters
        ]

    def count(self, parameter: Any) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] == self.required:
            self.bucket.append(parameter)
            if sum(p.grad.nbytes for p in self.bucket) >= self.cap_bytes:
                self.reduce_bucket()

    def reduce_bucket(self) -> None:
        for gradient in [parameter.grad for parameter in self.bucket]:
            if isinstance(gradient, DTensor):
                for axis, placement in enumerate(gradient.placements):
                    if placement.is_replicate():
                        group = gradient.device_mesh.get_group(axis)
                        dist.all_reduce(gradient.to_local().detach(), group=group)
        self.bucket = []

    def wait(self) -> None:
        """Return when all gradients are reduced."""

    def zero_grad(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            parameter.grad = None

    def unbind(self) -> None:
        for hook in self.hooks:
            hook.remove()


@pytest.mark.slow
@pytest.mark.long
def test_the_last_bucket_is_sent_by_wait_and_not_each_parameter_alone() -> None:
    subject = Subject("SendsFullBuckets", SendsFullBuckets, Capabilities())
    fix = find_fix(case_of(subject))
    assert fix is not None
    assert fix.lines[-1] == "+ self.reduce_bucket()"
    assert str(fix.place).endswith(" in wait")


class NotesTheOrder(PlainGrads):
    """Notes gradients in a list that is not there, for a use that no scenario shows."""

    def bind(self) -> None:
        self.orders: list[list[nn.Parameter]] = []
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.note)
            self.handles.append(hook)

    def note(self, parameter: nn.Parameter) -> None:
        self.orders[-1].append(parameter)


@pytest.mark.slow
def test_the_line_that_raises_is_neither_removed_nor_kept_from_running() -> None:
    case = case_of(resolve(NotesTheOrder))
    assert case.found.violation.cause.startswith("raised_")
    assert find_fix(case) is None


class NoSum(PlainGrads):
    def wait(self) -> None:
        pass


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3))

    def forward(self, generator: torch.Generator) -> torch.Tensor:
        inputs = torch.randn(3, generator=generator).to(self.weight)
        return (inputs * self.weight).sum().float()


@pytest.mark.slow
def test_a_change_that_breaks_a_layer_of_the_same_file_is_no_fix() -> None:
    contract = Capabilities(layers=(f"{__name__}:Own",))
    provide_layers(contract)
    mesh = MeshSpec((2,), ("dp",))
    trained = Scenario(mesh, module_parameters("Own", mesh), (1,), 1, module="Own")
    subject = resolve(NoSum, contract)
    first, *_ = violations(subject, trained)
    game = Game(FoundViolation(first, trained), subject, BACKEND)
    source = source_of(__file__)
    assert source is not None
    line = next(n for n, text in enumerate(source.lines, 1) if "inputs = " in text)
    statement = source.statement_at(line)
    assert statement is not None
    try:
        assert not game.mends(source.instead(statement, "pass"))
    finally:
        forget_layers()


# Lines that decide ran in the failing scenario, and in none that is right.


class IsWrongForManyParameters(PlainGrads):
    """Has a mistake in a branch."""

    capabilities = replace(Capabilities(), varying_accumulations=True)

    def wait(self) -> None:
        super().wait()
        if len(self.parameters) > 20:
            local_grad(self.parameters[0]).mul_(5)


class IsWrongEverywhere(PlainGrads):
    """Has a mistake on the plain path."""

    capabilities = replace(Capabilities(), varying_accumulations=True)

    def wait(self) -> None:
        super().wait()
        for parameter in self.parameters:
            local_grad(parameter).mul_(5)


@pytest.fixture
def _lines_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "deciding_lines", deciding_lines)


def deciders(subject: type) -> list[str]:
    specs = tuple(ParameterSpec(f"p{n}", (2,), ("R",)) for n in range(21))
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1,), 1 << 20)
    found, backend = resolve(subject), SimBackend()
    first, *_ = violations(found, scenario)
    entry = diagnosis.diagnosed(FoundViolation(first, scenario), found, backend)
    return [f"{each.line.function}: {each.code}" for each in entry.deciders]


@pytest.mark.slow
@pytest.mark.usefixtures("_lines_are_looked_for")
def test_the_line_of_a_branch_decides() -> None:
    assert deciders(IsWrongForManyParameters) == [
        "wait: local_grad(self.parameters[0]).mul_(5)"
    ]


@pytest.mark.long
@pytest.mark.usefixtures("_lines_are_looked_for")
def test_no_line_of_the_plain_path_decides() -> None:
    assert deciders(IsWrongEverywhere) == []


# Violations that one fix mends are reported once; those of another mistake stay.


class TakesTheLastAxisFirst(PlainGrads):
    """Sums twice over the last axis of two, and not at all over the first one."""

    def wait(self) -> None:
        for parameter in self.parameters:
            gradient = parameter.grad
            if isinstance(gradient, DTensor):
                placements = enumerate(gradient.placements)
                axes = [axis for axis, each in placements if each.is_replicate()]
                mesh, local = gradient.device_mesh, gradient.to_local().detach()
                if axes:
                    dist.all_reduce(local, group=mesh.get_group(axes[-1]))
                for axis in axes[1:]:
                    dist.all_reduce(local, group=mesh.get_group(axis))


def program(shape: tuple[int, int], dtype: str = "float32") -> Scenario:
    placements = ("R", "R") if dtype == "float32" else ("S0", "S0")
    spec = ParameterSpec("p0", (4,), placements, dtype=dtype)
    return Scenario(MeshSpec(shape, ("dp", "tp")), (spec,), (1,), 1 << 20)


def entries(subject: Subject, *scenarios: Scenario) -> list[FoundViolation]:
    """Return the first violation of each scenario."""
    return [FoundViolation(violations(subject, each)[0], each) for each in scenarios]


def reported_by_fix(subject: type, *scenarios: Scenario) -> list[FoundViolation]:
    resolved = resolve(subject)

    def diagnose(entry: FoundViolation) -> FoundViolation:
        return replace(entry, fix=find_fix(Case(entry, resolved, BACKEND)))

    found: Iterable[FoundViolation] = entries(resolved, *scenarios)
    return diagnosis.diagnosed_by_fix(found, diagnose, resolved, BACKEND)


@pytest.mark.long
def test_two_signs_of_one_mistake_are_one_violation() -> None:
    (entry,) = reported_by_fix(TakesTheLastAxisFirst, program((2, 1)), program((1, 2)))
    assert entry.fix is not None
    assert len(entry.related) == 1
    assert entry.related[0].cause != entry.violation.cause
