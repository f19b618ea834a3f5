"""A fix is code in the subject's own names, and was played."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.bugbank.catalogue import entry_of
from syncverify.judge.properties import check
from syncverify.judge.violation import Violation
from syncverify.program.modules import module_parameters
from syncverify.program.modules.layers import forget_layers, provide_layers
from syncverify.repair.fix_search import find_fix
from syncverify.repair.game import Game, MeasuredPlay
from syncverify.repair.source_edit import Edit, source_of
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Identity
from syncverify.subjects.subject import Subject, resolve
from syncverify.trace.run import Run
from syncverify.witness.fix import Fix

PAIR = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("w", (3,), ("R",)),), (2,), 1 << 20
)
BACKEND = SimBackend()


def violation(subject: Subject) -> FoundViolation | None:
    run = BACKEND.run(PAIR, subject)
    found = check(PAIR, run, subject.capabilities)
    return FoundViolation(found[0], PAIR) if found else None


def fix_of(entry_id: str) -> Fix | None:
    subject = entry_of(entry_id).defect()
    found = violation(subject)
    assert found is not None
    return find_fix(found, subject, BACKEND)


@pytest.mark.long
@pytest.mark.parametrize(
    ("entry_id", "place", "lines"),
    [
        (
            "final-join-missing",
            "side_streams.py:34 in wait",
            (
                "  self.join()",
                "+ torch.cuda.current_stream().wait_stream(self.comm)",
            ),
        ),
        (
            "comm-stream-not-after-producer",
            "side_streams.py:26 in launch",
            (
                "  self.fork()",
                "+ self.comm.wait_stream(torch.cuda.current_stream())",
            ),
        ),
        (
            "double-accumulation-division",
            "factors.py:95 in divisor",
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
    assert violation(entry_of(entry_id).defect()) is not None


MISMATCH = ("collectives_match_across_ranks", "foreign_contribution")
LOST = ("gradient_equals_reference", "not_reduced")
LEFT = ("unbind_restores_parameters", "hook_left")


@pytest.mark.parametrize(
    ("before", "after", "is_harmless"),
    [
        ({MISMATCH, LOST}, set(), True),
        ({LOST}, {LOST}, False),  # nothing is reduced, and nothing can mismatch
        ({MISMATCH}, {MISMATCH}, False),
        ({LEFT}, {LEFT}, True),  # another defect
        (set(), {LEFT}, False),
    ],
)
def test_a_change_has_to_hold_what_it_mends_in_other_scenarios(
    monkeypatch: pytest.MonkeyPatch,
    before: set[Identity],
    after: set[Identity],
    is_harmless: bool,  # noqa: FBT001  # a parameter of a test
) -> None:
    def play(_: Game, __: Scenario, edit: Edit | None) -> MeasuredPlay:
        return MeasuredPlay(before if edit is None else after, (), reaches_end=True)

    monkeypatch.setattr(Game, "_measured_play", play)
    found = FoundViolation(Violation(*MISMATCH, "", (), (), {}), PAIR)
    game = Game(found, entry_of("final-join-missing").defect(), BACKEND)
    edit = Edit("sync.py", 1, 1, ("return",), 4)
    assert game.is_harmless(edit) == is_harmless


def test_what_is_judged_is_measured_in_the_same_play(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject = entry_of("double-accumulation-division").defect()
    found, plays, played = violation(subject), Counter[Scenario](), Game._run
    assert found is not None

    def run(game: Game, scenario: Scenario, *others: Any) -> Run | None:
        plays[scenario] += 1
        return played(game, scenario, *others)

    monkeypatch.setattr(Game, "_run", run)
    game = Game(found, subject, BACKEND)
    larger = replace(PAIR, accumulations=(3,))
    game._others = [(larger, game._measured_play(larger, None))]
    code = subject.factory.divisor.__code__  # type: ignore[attr-defined]
    right = ("return super().divisor(bucket)",)
    edit = Edit(code.co_filename, code.co_firstlineno + 2, 1, right, 8)
    assert game.is_harmless(edit)
    assert game.cost_of(edit).regression == "too few scenarios to compare"
    assert plays == {larger: 2}  # without the change and with it


def test_no_change_mends_what_one_play_does_not_show() -> None:
    subject = entry_of("final-join-missing").defect()
    found = violation(subject)
    assert found is not None
    assert Game(found, subject, BACKEND).shows_violation()
    chance = Violation("subject_is_deterministic", "acts_otherwise", "", (), (), {})
    by_chance = FoundViolation(chance, PAIR)
    assert not Game(by_chance, subject, BACKEND).shows_violation()
    assert find_fix(by_chance, subject, BACKEND) is None


class DropsHandles(PlainGrads):
    """Sums on a new group, and waits for no sum."""

    capabilities = Capabilities(tensors="local", device="cuda", reduction="sum")

    @override
    def bind(self) -> None:
        super().bind()
        self.group = dist.new_group()

    @override
    def wait(self) -> None:
        grads = [p.grad for p in self.parameters if p.grad is not None]
        [dist.all_reduce(g, group=self.group, async_op=True) for g in grads]


@pytest.mark.long
def test_a_fix_names_nothing_that_the_harness_holds() -> None:
    subject = resolve(DropsHandles)
    found = violation(subject)
    assert found is not None
    fix = find_fix(found, subject, BACKEND)
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


@pytest.mark.long
def test_the_last_bucket_is_sent_by_wait_and_not_each_parameter_alone() -> None:
    subject = Subject("SendsFullBuckets", SendsFullBuckets, Capabilities())
    found = violation(subject)
    assert found is not None
    fix = find_fix(found, subject, BACKEND)
    assert fix is not None
    assert fix.lines[-1] == "+ self.reduce_bucket()"
    assert str(fix.place).endswith(" in wait")


class NotesTheOrder(PlainGrads):
    """Notes gradients in a list that is not there, for a use that no scenario shows."""

    @override
    def bind(self) -> None:
        self.orders: list[list[nn.Parameter]] = []
        for parameter in self.parameters:
            hook = parameter.register_post_accumulate_grad_hook(self.note)
            self.handles.append(hook)

    def note(self, parameter: nn.Parameter) -> None:
        self.orders[-1].append(parameter)


class NotesTheOrderOnce(NotesTheOrder):
    """Asks for a tensor in a list, which compares tensors, until the order is known."""

    known = False

    @override
    def bind(self) -> None:
        super().bind()
        self.order = [nn.Parameter(torch.zeros(7))]

    @override
    def note(self, parameter: nn.Parameter) -> None:
        if not self.known and parameter not in self.order:
            self.order.append(parameter)


@pytest.mark.long
@pytest.mark.parametrize("subject", [NotesTheOrder, NotesTheOrderOnce])
def test_the_line_that_raises_is_neither_removed_nor_kept_from_running(
    subject: type,
) -> None:
    specs = (ParameterSpec("p0", (2,), ("R",)),)
    scenario = Scenario(MeshSpec((2,), ("dp",)), specs, (1,), 1 << 20)
    found, backend = resolve(subject), SimBackend()
    first, *_ = check(scenario, backend.run(scenario, found), found.capabilities)
    assert first.cause.startswith("raised_")
    fix = find_fix(FoundViolation(first, scenario), found, backend)
    assert fix is None or "+ if not self.known" in fix.lines[-1]


class NoSum(PlainGrads):
    @override
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
    first, *_ = check(trained, BACKEND.run(trained, subject), contract)
    game = Game(FoundViolation(first, trained), subject, BACKEND)
    source = source_of(__file__)
    assert source is not None
    line = next(n for n, text in enumerate(source.lines, 1) if "inputs = " in text)
    statement = source.statement_at(line)
    assert statement is not None
    try:
        assert not game.mends(Edit.instead(source.path, statement, "pass"))
    finally:
        forget_layers()
