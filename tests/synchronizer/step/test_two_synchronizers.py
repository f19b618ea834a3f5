"""Two synchronizers on one rank: their sums keep apart for any order of backwards."""

from dataclasses import replace
from typing import Any

import pytest
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from syncverify.judge.properties import check
from syncverify.playing.fake import FakeBackend
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from syncverify.synchronizer import GradientSynchronizer
from syncverify.synchronizer.step.sequence import BucketSequence
from syncverify.trace.run import Run
from tests.programs import parameter

BY_RANK = Scenario(
    MeshSpec((3,), ("dp",)),
    tuple(ParameterSpec(f"p{index}", (index + 1,), ("R",)) for index in range(3)),
    (1, 1),
    2**20,
    readiness="by_rank",
    synchronizers="two",
)
# One synchronizer reduces over rows, the other one over columns: each pair of ranks has at most
# one set in common, and yet four ranks may wait in a circle.
ROWS_AND_COLUMNS = replace(
    BY_RANK,
    mesh=MeshSpec((2, 2), ("dp", "tp")),
    parameters=tuple(
        ParameterSpec(f"p{index}", (3,), placements)
        for index, placements in enumerate([("S0", "R"), ("R", "S0")] * 2)
    ),
    accumulations=(2,),
    bucket_cap_bytes=1,
)


def violations(run: Run, scenario: Scenario = BY_RANK) -> list[str]:
    contract = resolve("synchronizer").capabilities
    return [found.property for found in check(scenario, run, contract)]


@pytest.mark.parametrize("scenario", [BY_RANK, ROWS_AND_COLUMNS])
def test_any_order_of_backwards_is_right(scenario: Scenario) -> None:
    run = SimBackend().run(scenario, resolve("synchronizer"))
    assert violations(run, scenario) == []


def test_ranks_without_a_store_keep_the_rule() -> None:
    """Odd ranks need one synchronizer in a backward, and even ranks both."""
    first, second, third = BY_RANK.parameters
    unlike = replace(
        BY_RANK,
        parameters=(first, replace(second, used="not_on_odd_ranks"), third),
        accumulations=(2,),
        readiness="same",
        backward="several_roots",
    )
    run = FakeBackend().run(unlike, resolve("synchronizer"))
    assert check(unlike, run, resolve("synchronizer").capabilities) == []


def test_without_the_rule_sums_of_one_meet_sums_of_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BucketSequence, "_is_one_of_several", False)
    run = SimBackend().run(BY_RANK, resolve("synchronizer"))
    assert "collectives_match_across_ranks" in violations(run)


def test_a_synchronizer_that_is_alone_again_overlaps(ranks: Any) -> None:
    def program(_: int) -> list[int]:
        mesh = init_device_mesh("cpu", (2,))
        one, other = parameter(mesh), parameter(mesh)
        found = []
        with GradientSynchronizer([[one]], 1, 1) as synchronizer:
            with GradientSynchronizer([[other]], 1, 1) as second:
                found.append(launched_in_backward(synchronizer, one))
                found.append(launched_in_backward(second, other))
            found.append(launched_in_backward(synchronizer, one))
        return found

    assert ranks.run(2, program) == [[0, 0, 1]] * 2


def launched_in_backward(
    synchronizer: GradientSynchronizer, parameter: nn.Parameter
) -> int:
    assert isinstance(parameter, DTensor)
    parameter.to_local().sum().backward()
    assert synchronizer._sequence is not None
    num_launched = len(synchronizer._sequence.in_flight)
    synchronizer.wait()
    assert parameter.grad.to_local().tolist() == [2, 2, 2]
    synchronizer.zero_grad()
    return num_launched


RANK_BY_RANK = Scenario(
    MeshSpec((2,), ("dp",)),
    tuple(ParameterSpec(name, (2,), ("R",)) for name in ("p0", "p1", "p2")),
    accumulations=(1, 1, 1),
    bucket_cap_bytes=1,  # a bucket each
    events=("plain", "raise_in_backward", "plain"),
    readiness="by_rank",
)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2,), (3,), (2, 2)])
def test_ranks_that_launched_different_buckets_reset(shape: tuple[int, ...]) -> None:
    names = ("dp", "tp")[: len(shape)]
    alike = ("R",) * len(shape)
    one_axis = ("S0",) * (len(shape) - 1) + ("R",)
    placed = (alike, one_axis, alike)
    scenario = replace(
        RANK_BY_RANK,
        mesh=MeshSpec(shape, names),
        parameters=tuple(
            replace(spec, placements=placements)
            for spec, placements in zip(RANK_BY_RANK.parameters, placed, strict=True)
        ),
    )
    subject = resolve("synchronizer")
    run = SimBackend().run(scenario, subject)
    assert run.fault is None
    assert check(scenario, run, subject.capabilities) == []
