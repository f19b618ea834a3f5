"""Any world size, no data: what is judged is what a rank does by itself."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from syncverify.backends.choice import open_backend
from syncverify.backends.fake import FakeBackend
from syncverify.errors import UsageError
from syncverify.properties import ALL_PROPERTIES, check
from syncverify.scenario import MeshSpec, ParameterSpec, Scenario
from syncverify.subject import Capabilities, resolve
from syncverify.trace import CollectiveLaunch

WIDE = Scenario(
    MeshSpec((8, 2), ("dp", "tp")),
    (ParameterSpec("w", (19,), ("R", "S0")), ParameterSpec("b", (3,), ("R", "R"))),
    (2, 1),
    2**20,
)
ONE_PARAMETER = Scenario(
    MeshSpec((16,), ("dp",)), (ParameterSpec("w", (5,), ("R",)),), (1,), 2**20
)


class NeverReduces:
    """What only data, or the trace, can tell from a right one."""

    def __init__(self, groups: list[list[nn.Parameter]], mb: float, count: int) -> None:
        self.parameters = [parameter for group in groups for parameter in group]

    def bind(self) -> None: ...
    def wait(self) -> None: ...
    def unbind(self) -> None: ...

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


class LeavesHookOnLastRank(NeverReduces):
    def wait(self) -> None:
        dist.all_reduce(torch.zeros(5))

    def unbind(self) -> None:
        if dist.get_rank() == dist.get_world_size() - 1:
            for parameter in self.parameters:
                parameter.register_post_accumulate_grad_hook(lambda p: None)


class RaisesOnRank9(NeverReduces):
    def wait(self) -> None:
        dist.all_reduce(torch.zeros(5))

    def bind(self) -> None:
        if dist.get_rank() == 9:
            raise ValueError("nine")


@pytest.mark.slow
def test_sixteen_ranks_play() -> None:
    run = FakeBackend().run(WIDE, resolve("synchronizer"))
    assert run.fault is None
    assert run.carries_data is False
    assert len(run.ranks) == 16
    for rank, rank_run in enumerate(run.ranks):
        issued = [e for e in rank_run.events if isinstance(e, CollectiveLaunch)]
        groups = {launch.ranks for launch in issued}
        row = rank - rank % 2  # tiny buckets over both axes go axis by axis
        assert groups == {(row, row + 1), tuple(range(rank % 2, 16, 2))}
    assert check(WIDE, run, resolve("synchronizer").capabilities) == []


def violations(subject: Any) -> list[tuple[str, str, tuple[int, ...]]]:
    found = resolve(subject)
    run = FakeBackend().run(ONE_PARAMETER, found)
    judged = check(ONE_PARAMETER, run, found.capabilities)
    return [(v.property, v.cause, v.ranks) for v in judged]


def test_missing_reductions_show_without_data() -> None:
    assert violations(NeverReduces) == [
        ("each_bucket_reduced_once_per_step", "not_reduced", tuple(range(16)))
    ]


def test_a_hook_left_on_one_rank_shows() -> None:
    assert violations(LeavesHookOnLastRank) == [
        ("unbind_restores_parameters", "hook_left", (15,))
    ]


def test_an_exception_names_its_rank() -> None:
    assert violations(RaisesOnRank9) == [
        ("every_rank_finishes", "raised_ValueError", (9,))
    ]


def test_values_and_accesses_are_not_judged() -> None:
    skipped = {entry.name for entry in ALL_PROPERTIES if entry.needs_data}
    assert skipped == {
        "gradient_equals_reference", "replicas_agree", "unreduced_stay_local",
        "reduce_reads_after_accumulation", "bucket_is_exclusive_while_reducing",
        "wait_orders_reads_after_reduce", "zero_grad_waits_for_reduce",
        "memory_outlives_its_streams", "overlap_is_possible",
    }  # fmt: skip


def test_world_is_left_as_it_was() -> None:
    FakeBackend().run(ONE_PARAMETER, resolve(NeverReduces))
    assert not dist.is_initialized()


def test_subject_that_needs_data_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        open_backend("fake", resolve("ddp"))
    assert str(caught.value) == (
        "subject 'ddp' does not run on the fake backend: it needs the results of "
        "collectives"
    )


def test_other_subjects_are_taken() -> None:
    assert not resolve(NeverReduces).capabilities.needs_data
    assert Capabilities() == resolve(NeverReduces).capabilities
    assert isinstance(open_backend("fake", resolve(NeverReduces)), FakeBackend)
