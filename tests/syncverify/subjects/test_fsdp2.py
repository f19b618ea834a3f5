"""FSDP2 and its switches: no violation where right, a violation where wrong."""

import pytest
import torch
from torch.distributed.fsdp._fully_shard import _fsdp_collectives

from syncverify import verify
from syncverify.errors import UsageError
from syncverify.judge.properties import check
from syncverify.playing.gloo import GlooBackend
from syncverify.playing.sim import SimBackend
from syncverify.scenario.features import features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.fsdp2 import FullyShardedSubject
from syncverify.subjects.subject import resolve
from tests.programs import one_parameter, violations

# The second group is sharded in two halves (HSDP); 3 rows do not divide by 2 or 4.
IN_HALVES = Scenario(
    MeshSpec((4,), ("dp",)),
    (
        ParameterSpec("p0", (3, 2), ("R",)),
        ParameterSpec("p1", (3,), ("R",), dtype="bfloat16", group=1),
        ParameterSpec("p2", (2,), ("R",), group=1),
        ParameterSpec("p3", (2,), ("R",), group=1, requires_grad=False),
    ),
    (2, 1),
    2**20,
)
FSDP2 = resolve("fsdp2")


@pytest.mark.long
def test_both_meshes_reduce_and_sim_equals_gloo() -> None:
    gloo = GlooBackend()
    try:
        runs = [SimBackend().run(IN_HALVES, FSDP2), gloo.run(IN_HALVES, FSDP2)]
    finally:
        gloo.close()
    for run in runs:
        assert check(IN_HALVES, run, FSDP2.capabilities) == []
    simulated, real = (
        [
            gradient
            for rank in run.ranks
            for observation in rank.observations
            for gradient in observation.gradients.values()
        ]
        for run in runs
    )
    assert len(simulated) == len(real)
    for one, other in zip(simulated, real, strict=True):
        assert (one is None) == (other is None)
        assert one is None or other is None or torch.equal(one, other)


class LosesAShard(FullyShardedSubject):
    """Clears one rank's shard of each gradient before the shards are gathered."""

    def wait(self) -> None:
        if torch.distributed.get_rank() == 1:
            for _, shard in self._pairs():
                if shard.grad is not None:
                    shard.grad.to_local().zero_()
        super().wait()


def test_a_wrong_use_of_it_is_found() -> None:
    found = violations(LosesAShard, one_parameter(2, "p0", (4,)))
    assert "gradient_equals_reference" in {each.property for each in found}


def test_scalars_are_outside_of_its_contract() -> None:
    scalar = one_parameter(2, "p0", (), cap_bytes=64)
    outside = features_outside(scalar, FSDP2.capabilities)
    assert outside == [("parameters", "scalar")]
    run = SimBackend().run(scalar, FSDP2)
    assert "doesn't support scalar parameters" in str(run.fault)


# Switches: right as torch documents them, and a division that is done twice.


def scenario(num_ranks: int, dtype: str = "float32") -> Scenario:
    spec = ParameterSpec("p0", (3, 2), ("R",), dtype=dtype)
    return Scenario(MeshSpec((num_ranks,), ("dp",)), (spec,), (2, 1), 2**20)


@pytest.mark.slow
@pytest.mark.parametrize("options", [
    "fsdp2:gradient_divide_factor=2",
    "fsdp2:gradient_divide_factor=4,force_sum_reduction_for_comms=true",
    "fsdp2:gradient_divide_factor=0.5,reduce_dtype=float64",
    "fsdp2:gradient_divide_factor=1,force_sum_reduction_for_comms=true,shard_size=1",
    "fsdp2:gradient_divide_factor=2,shard_size=1",
    "fsdp2:gradient_sync=each,reshard_after_forward=false,reshard=last",
    "hsdp:all_reduce=last,shard_size=1,reduce_dtype=float64",
    "hsdp:all_reduce=last,gradient_divide_factor=2",
    "replicate-fsdp:force_sum_reduction_for_comms=true,reduce_dtype=float32",
])  # fmt: skip
def test_a_right_use_of_its_switches_is_right(options: str) -> None:
    for num_ranks in (2, 4):
        assert violations(options, scenario(num_ranks)) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "played"),
    [
        ("force_sum_reduction_for_comms=true,shard_size=1", scenario(2)),
        ("force_sum_reduction_for_comms=true", scenario(1)),
        ("reduce_dtype=float64", scenario(1)),
        ("shard_size=1", scenario(2, "float16")),
    ],
)
def test_a_shard_group_of_one_rank_divides_twice(
    options: str, played: Scenario
) -> None:
    """See docs/findings.md."""
    first, *_ = violations(f"fsdp2:gradient_divide_factor=2,{options}", played)
    assert first.cause == "scaled"


@pytest.mark.slow
def test_one_division_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one of torch's two divisions, nothing is found."""
    monkeypatch.setattr(
        _fsdp_collectives, "_div_if_needed", lambda tensor, factor: None
    )
    assert (
        violations(
            "fsdp2:gradient_divide_factor=2,force_sum_reduction_for_comms=true",
            scenario(1),
        )
        == []
    )


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_group_larger_than_every_world_is_refused(ranks: int) -> None:
    with pytest.raises(UsageError) as caught:
        verify("hsdp:shard_size=4,reshard=last", ranks=ranks, examples=1, seed=0)
    assert str(caught.value) == (
        f"subject 'hsdp:shard_size=4,reshard=last': expected ranks >= 4, got {ranks}: "
        "shard_size=4 has no effect on fewer"
    )
