"""Replicas are the same bits, where a gradient rounds too: an owner may not keep its own value."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from typing_extensions import override

from syncverify.bugbank.bases.placements import local, reduce_groups
from syncverify.bugbank.bases.plain_grads import PlainGrads
from syncverify.program.modules.named import module_parameters
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.programs import identities, violations
from tests.quality.planted.first_drawn import first_drawn

DIFFER = ("replicas_agree", "replicas_differ")
WIRE = Capabilities(varying_accumulations=True, wire_dtype="bfloat16")
REPLICATED = ParameterSpec("w", (7,), ("R",))


class GathersParts(PlainGrads):
    """Sums a part of each gradient on a rank, casts it, and gathers the parts of all ranks."""

    capabilities = WIRE
    sent_dtype = torch.bfloat16
    # What a rank has in the place of its own part that it sent.
    keeps: Any = None

    @override
    def wait(self) -> None:
        for parameter in self.parameters:
            for group in reduce_groups(parameter):
                if parameter.grad is not None:
                    self.reduce_in_parts(local(parameter.grad), group)

    def reduce_in_parts(self, gradient: torch.Tensor, group: dist.ProcessGroup) -> None:
        flat, count = gradient.reshape(-1), group.size()
        sent = torch.cat([flat, flat.new_zeros(-flat.numel() % count)])
        part = sent.new_empty(sent.numel() // count)
        dist.reduce_scatter_single(part, sent, group=group)
        narrow = part.to(self.sent_dtype)
        received = narrow.new_empty(sent.numel())
        dist.all_gather_single(received, narrow, group=group)
        whole = received.to(gradient.dtype)
        if self.keeps is not None:
            whole.view(count, -1)[group.rank()] = self.keeps(part)
        gradient.copy_(whole[: flat.numel()].view_as(gradient))


class KeepsOwnPart(GathersParts):
    """The rank that summed a part keeps the sum from before the cast."""

    keeps = staticmethod(torch.Tensor.clone)


class KeepsNextNumber(GathersParts):
    """Sends what it has, and keeps the next larger number."""

    capabilities = Capabilities(varying_accumulations=True)
    sent_dtype = torch.float32
    keeps = staticmethod(
        lambda part: torch.nextafter(part, part.new_full((), torch.inf))
    )


class BroadcastsNarrow(PlainGrads):
    """Makes replicas equal in `bind()` by a broadcast in bfloat16."""

    capabilities = Capabilities(
        varying_accumulations=True, features=frozenset({"replicas"})
    )
    sender_keeps = False

    @override
    def bind(self) -> None:
        for parameter in self.parameters:
            for group in reduce_groups(parameter):
                sent = local(parameter).to(torch.bfloat16)
                dist.broadcast(sent, group=group, group_src=0)
                if group.rank() or not self.sender_keeps:
                    local(parameter).copy_(sent)


class BroadcastsNarrowAndKeeps(BroadcastsNarrow):
    """The sender keeps its value from before the cast."""

    sender_keeps = True


def scenario(*specs: ParameterSpec, ranks: int = 2, **words: Any) -> Scenario:
    return Scenario(
        MeshSpec((ranks,), ("dp",)), specs or (REPLICATED,), (2,), 64, **words
    )


def test_an_owner_that_keeps_its_sum_from_before_the_cast_is_found() -> None:
    (found,) = violations(KeepsOwnPart, scenario())
    assert found.identity == DIFFER
    assert identities(GathersParts, scenario()) == set()


def test_a_sum_that_rounds_on_the_wire_is_within_its_bound_and_a_lost_one_is_not() -> (
    None
):
    class LosesOne(GathersParts):
        @override
        def wait(self) -> None:
            pass

    found = {name for name, _ in identities(LosesOne, scenario())}
    assert "gradient_is_within_rounding" in found
    assert "gradient_equals_reference" not in found
    ordinary = ParameterSpec("b", (3,), None)
    assert identities(GathersParts, scenario(REPLICATED, ordinary)) == set()


def test_a_module_with_replicas_one_rounding_apart_is_found() -> None:
    mesh = MeshSpec((4,), ("dp",))
    trained = Scenario(mesh, module_parameters("mlp", mesh), (2,), 64, module="mlp")
    assert identities(KeepsNextNumber, trained) == {DIFFER}


@pytest.mark.long
def test_a_search_of_a_narrow_wire_finds_an_owner_that_keeps_its_sum() -> None:
    played = 0

    def is_wrong(drawn: Scenario) -> bool:
        nonlocal played
        played += 1
        assert identities(GathersParts, drawn) == set()
        return DIFFER in identities(KeepsOwnPart, drawn)

    assert first_drawn(is_wrong, WIRE, 60) is not None
    assert played > 1


def test_a_sender_that_keeps_its_parameter_from_before_the_cast_is_found() -> None:
    unequal = scenario(replicas="unequal")
    left = ("unbind_restores_parameters", "replicas_left_unequal")
    assert identities(BroadcastsNarrowAndKeeps, unequal) == {left}
    assert identities(BroadcastsNarrow, unequal) == set()


@pytest.mark.parametrize(
    "subject", ["hsdp:reduce_dtype=bfloat16", "fsdp2:reduce_dtype=bfloat16"]
)
def test_fsdp2_that_sums_in_bfloat16_is_silent_where_sums_round(subject: str) -> None:
    spec = ParameterSpec("w", (8, 3), ("R",))
    assert identities(subject, scenario(spec, ranks=4)) == set()
