"""The gradients that `wait()` leaves behind, each beside the right value."""

from __future__ import annotations

from collections.abc import Iterator

from syncverify.judge.expected_gradient import ExpectedGradient
from syncverify.judge.properties.judgement import Judgement
from syncverify.scenario import step_plan
from syncverify.scenario.layout import reduce_axes
from syncverify.scenario.specs import ParameterSpec
from syncverify.trace.run import Observation


def owes_reduction(judgement: Judgement) -> bool:
    """A trainable parameter is replicated over two ranks or more."""
    scenario = judgement.scenario
    return any(reduce_axes(scenario.mesh, spec) for spec in scenario.trainable)


AfterWait = tuple[ExpectedGradient, Observation]


def each_after_wait(
    judgement: Judgement,
) -> Iterator[tuple[int, Observation, ParameterSpec]]:
    """Yield rank, observation and parameter for each `wait()`; steps come first."""
    for step in range(judgement.scenario.num_steps):
        for spec in judgement.scenario.parameters:
            for rank in range(judgement.scenario.mesh.num_ranks):
                observation = judgement.run.ranks[rank].at("reduced", step)
                if observation is not None:
                    yield rank, observation, spec


def on_all_ranks(judgement: Judgement, *, reduced: bool) -> Iterator[AfterWait]:
    """Yield expected and observed gradients of each `wait()`, reduced ones or others."""
    mesh = judgement.scenario.mesh
    for rank, observation, spec in each_after_wait(judgement):
        if not spec.requires_grad or bool(reduce_axes(mesh, spec)) != reduced:
            continue
        expected = ExpectedGradient(
            reference=judgement.reference,
            spec=spec,
            rank=rank,
            step=observation.step,
            count=step_plan.num_micro_batches(judgement.scenario, observation.step),
            ranks=judgement.reference.contributors(spec, rank),
            divisor=judgement.reference.divisor(spec, rank),
        )
        yield expected, observation
