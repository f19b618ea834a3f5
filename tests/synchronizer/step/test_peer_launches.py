"""`reset()` leads back when an error found ranks at different places."""

from dataclasses import replace

import pytest

from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve

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
