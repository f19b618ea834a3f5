"""DDP and its variants: no violation where right, and a violation in a wrong use."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from syncverify import verify
from syncverify.judge.properties import check
from syncverify.playing.sim import SimBackend
from syncverify.scenario.feature_table import WORDS
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.ddp import BucketViewSubject, DistributedDataParallelSubject
from syncverify.subjects.replicate import ReplicateSubject
from syncverify.subjects.subject import resolve
from tests.programs import identities, violations

ALIKE = (
    "ddp-bucket-view",
    "ddp-comm-hook",
    "ddp-find-unused",
    "hsdp",
    "replicate",
    "replicate-fsdp",
)


def two_micro_batches(num_ranks: int) -> Scenario:
    parameter = ParameterSpec("p0", (2,), ("R",))
    return Scenario(MeshSpec((num_ranks,), ("dp",)), (parameter,), (2,), 2**20)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ALIKE)
def test_a_variant_is_silent_on_simulated_ranks(name: str) -> None:
    assert verify(name, ranks=4, examples=8, seed=3).violations == ()


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_static_graph_fails_where_training_starts_in_no_sync(num_ranks: int) -> None:
    subject, scenario = resolve("ddp-static-graph"), two_micro_batches(num_ranks)
    run = SimBackend().run(scenario, subject)
    found = check(scenario, run, subject.capabilities)
    assert "every_rank_finishes" in {violation.property for violation in found}
    assert "expect_autograd_hooks_" in str(run.fault)


@pytest.mark.parametrize("backward", ["anomaly", "loss_scaling", "several_roots"])
@pytest.mark.parametrize("name", [
    "studies.stand_ins.one_backward:StaticGraphOfOneBackward", "ddp-find-unused",
])  # fmt: skip
def test_ddp_finds_the_losses_that_another_backward_takes(
    name: str, backward: str
) -> None:
    """DDP puts one node behind all tensors of an output, and looks for them in a dict."""
    parameters = tuple(ParameterSpec(f"p{n}", (2,), ("R",)) for n in range(2))
    scenario = Scenario(
        MeshSpec((2,), ("dp",)), parameters, (1, 1), 2**20, backward=backward
    )
    assert violations(name, scenario) == []


class ForgetsTheHook(BucketViewSubject):
    """A hook that leaves gradients as they are."""

    def bind(self) -> None:
        super().bind()
        self.wrapped.register_comm_hook(None, _local)


def _local(
    _: object, bucket: torch.distributed.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class NeverSyncs(ReplicateSubject):
    """Forgets to say which micro-batch is the last."""

    def run_micro_batch(
        self, compute_loss: Callable[[], torch.Tensor], *, is_last: bool
    ) -> None:
        super().run_micro_batch(compute_loss, is_last=False)


@pytest.mark.parametrize("factory", [ForgetsTheHook, NeverSyncs])
def test_a_wrong_use_is_found(factory: type[BucketViewSubject]) -> None:
    scenario = two_micro_batches(2)
    found = violations(factory, scenario)
    assert "gradient_equals_reference" in {violation.property for violation in found}


def launched(launch: str) -> Scenario:
    """Return two steps in which the engine adds up the gradient of a parameter."""
    parameter = ParameterSpec("p0", (4,), ("R",), use="twice")
    mesh = MeshSpec((2,), ("dp",))
    return Scenario(mesh, (parameter,), (1, 1), 16, launch=launch)


@pytest.mark.parametrize("launch", WORDS["launch"])
def test_every_launch_is_promised_and_right(launch: str) -> None:
    ddp = resolve("ddp")
    assert ddp.capabilities.covers("launch", launch)
    assert violations(ddp, launched(launch)) == []


class DropsAtOnce(DistributedDataParallelSubject):
    """Drops gradients as torch's optimizers do: the creating stream waits for no reader."""

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


@pytest.mark.parametrize(
    ("launch", "expected"),
    [
        ("current_stream", set()),
        ("step_on_side_stream", {("memory_outlives_its_streams", "freed_in_use")}),
    ],
)
def test_a_caller_that_does_not_wait_is_reported(launch: str, expected: Any) -> None:
    assert identities(DropsAtOnce, launched(launch)) == expected
