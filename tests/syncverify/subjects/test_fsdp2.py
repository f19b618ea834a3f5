"""FSDP2 as a subject: no violation where it is right, and one where its shards are wrong."""

import pytest
import torch

from syncverify import verify
from syncverify.backends.gloo import GlooBackend
from syncverify.backends.sim import SimBackend
from syncverify.judge.properties import check
from syncverify.scenario.features import features_outside
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.fsdp2 import FullyShardedSubject
from syncverify.subjects.subject import resolve
from syncverify.verification.verify import PropertyViolation
from tests.programs import one_parameter

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
def test_fsdp2_is_silent_on_simulated_ranks() -> None:
    report = verify("fsdp2", ranks=4, examples=15, seed=3)
    assert report.violations == ()


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


class NeverLast(FullyShardedSubject):
    """Forgets to say which micro-batch is the last."""

    def run_micro_batch(self, compute_loss, *, is_last: bool) -> None:  # type: ignore[no-untyped-def]
        super().run_micro_batch(compute_loss, is_last=False)


class LosesAShard(FullyShardedSubject):
    """Clears one rank's shard of each gradient before the shards are gathered."""

    def wait(self) -> None:
        if torch.distributed.get_rank() == 1:
            for _, shard in self._pairs():
                if shard.grad is not None:
                    shard.grad.to_local().zero_()
        super().wait()


@pytest.mark.long
@pytest.mark.usefixtures("hardly_shrunk")
@pytest.mark.parametrize(
    "subject", [pytest.param(NeverLast, marks=pytest.mark.nightly), LosesAShard]
)
def test_a_wrong_use_of_it_is_found(subject: type[FullyShardedSubject]) -> None:
    with pytest.raises(PropertyViolation) as caught:
        verify(subject, ranks=2, examples=5, seed=0)
    names = {each.violation.property for each in caught.value.report.violations}
    assert "gradient_equals_reference" in names


def test_scalars_are_outside_of_its_contract() -> None:
    scalar = one_parameter(2, "p0", (), cap_bytes=64)
    outside = features_outside(scalar, FSDP2.capabilities)
    assert outside == [("parameters", "scalar")]
    run = SimBackend().run(scalar, FSDP2)
    assert "doesn't support scalar parameters" in str(run.fault)
