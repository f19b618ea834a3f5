"""Loss parity: does training give the losses of a training in one process?"""

from collections.abc import Callable, Iterator, Mapping

import torch

from studies.comparison.methods.method import Method
from studies.comparison.verdicts import SILENT, Verdict, alarm
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import MicroBatchKey
from syncverify.scenario import step_plan
from syncverify.scenario.layout import local_shape
from syncverify.scenario.specs import ParameterSpec

RELATIVE_TOLERANCE = 0.01
# Root mean square of the updates, relative to weights of size 1.
_RELATIVE_UPDATE = 0.1

Key = tuple[str, int]  # parameter and rank
Gradients = Callable[[ParameterSpec, int, int], torch.Tensor | None]


def losses_agree(judgement: Judgement) -> Verdict:
    """Compare the loss of each step with that of a training in one process.

    Losses of scenarios are linear in the parameters, so gradients do not depend on the
    weights, and SGD can be replayed from the gradients that each rank was given.

    Args:
        judgement: A run on gloo.

    Returns:
        An alarm at the first loss that is out of tolerance.
    """

    def observed(spec: ParameterSpec, rank: int, step: int) -> torch.Tensor | None:
        found = judgement.run.ranks[rank].at("reduced", step)
        return None if found is None else found.gradients[spec.name]

    def golden(spec: ParameterSpec, rank: int, step: int) -> torch.Tensor | None:
        if judgement.run.ranks[rank].at("reduced", step) is None:
            return None  # the step was thrown away, so no weights change
        return judgement.reference.reduced(spec, rank, step)

    rate = _learning_rate(judgement)
    curves = zip(
        _losses(judgement, observed, rate),
        _losses(judgement, golden, rate),
        strict=True,
    )
    for step, (loss, expected) in enumerate(curves):
        # `not <=` in the place of `>`: a loss that is NaN is an alarm.
        if not abs(loss - expected) <= RELATIVE_TOLERANCE * abs(expected):
            return alarm(f"loss of step {step} is {loss:g}, expected {expected:g}")
    return SILENT


def _losses(judgement: Judgement, gradients: Gradients, rate: float) -> Iterator[float]:
    """Yield the mean loss of each step, over all ranks and micro-batches."""
    scenario, weights = judgement.scenario, _initial(judgement)
    for step in range(scenario.num_steps):
        count = step_plan.num_micro_batches(scenario, step)
        yield _loss(judgement, weights, step, count)
        for spec in scenario.trainable:
            for rank in range(scenario.mesh.num_ranks):
                gradient = gradients(spec, rank, step)
                if gradient is not None:
                    weights[spec.name, rank] -= rate * gradient.to(torch.float64)


def _loss(
    judgement: Judgement, weights: Mapping[Key, torch.Tensor], step: int, count: int
) -> float:
    if not count:
        return 0.0
    gradient_of = judgement.reference.micro_batches
    terms = (
        (weight * gradient_of[MicroBatchKey(name, rank, step, micro_batch)])
        .sum()
        .item()
        for (name, rank), weight in weights.items()
        for micro_batch in range(count)
    )
    return sum(terms) / (count * judgement.scenario.mesh.num_ranks)


def _initial(judgement: Judgement) -> dict[Key, torch.Tensor]:
    """Make weights of 1, equal on all ranks that hold the same part."""
    mesh = judgement.scenario.mesh
    return {
        (spec.name, rank): torch.ones(
            local_shape(mesh, spec, rank), dtype=torch.float64
        )
        for spec in judgement.scenario.trainable
        for rank in range(mesh.num_ranks)
    }


def _learning_rate(judgement: Judgement) -> float:
    """Choose the rate at which a correct step moves weights by a tenth of their size."""
    scenario = judgement.scenario
    squares = [
        judgement.reference.reduced(spec, rank, step).square().flatten()
        for step in range(scenario.num_steps)
        for spec in scenario.trainable
        for rank in range(scenario.mesh.num_ranks)
    ]
    mean = torch.cat(squares).mean().sqrt().item()
    return _RELATIVE_UPDATE / mean if mean > 0 else 0.0


LOSS_PARITY = Method(
    "loss_parity",
    "loss parity",
    "gloo",
    losses_agree,
)
