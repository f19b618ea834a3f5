"""Loss parity: does training go as it does in one process?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch

from comparison.methods.method import Method
from comparison.verdicts import SILENT, Verdict, alarm
from syncverify import agenda
from syncverify.layout import local_shape
from syncverify.oracle import trainable
from syncverify.properties.judgement import Judgement
from syncverify.scenario import ParameterSpec

RELATIVE_TOLERANCE = 0.01
# In root mean square over all parameters and steps.
_RELATIVE_UPDATE = 0.1

Key = tuple[str, int]  # parameter and rank
Gradients = Callable[[ParameterSpec, int, int], torch.Tensor | None]


def losses_agree(judgement: Judgement) -> Verdict:
    """Compare the loss of each step with that of a training in one process.

    Losses of scenarios are linear in the parameters, so gradients do not depend on where
    training stands, and SGD can be replayed from the gradients that each rank was given.

    Args:
        judgement: A run.

    Returns:
        An alarm at the first loss that is out of tolerance.
    """

    def observed(spec: ParameterSpec, rank: int, step: int) -> torch.Tensor | None:
        found = judgement.run.ranks[rank].at("reduced", step)
        return None if found is None else found.gradients[spec.name]

    def golden(spec: ParameterSpec, rank: int, step: int) -> torch.Tensor | None:
        if judgement.run.ranks[rank].at("reduced", step) is None:
            return None  # nobody trains with a step that was thrown away
        return judgement.reference.reduced(spec, rank, step)

    rate = _learning_rate(judgement)
    curves = zip(
        _losses(judgement, observed, rate),
        _losses(judgement, golden, rate),
        strict=True,
    )
    for step, (loss, expected) in enumerate(curves):
        if not abs(loss - expected) <= RELATIVE_TOLERANCE * abs(expected):
            return alarm(f"loss of step {step} is {loss:g}, expected {expected:g}")
    return SILENT


def _losses(judgement: Judgement, gradients: Gradients, rate: float) -> Iterator[float]:
    """Yield the mean loss of each step, over all ranks and micro-batches."""
    scenario, weights = judgement.scenario, _initial(judgement)
    for step in range(scenario.num_steps):
        count = agenda.num_backwards(scenario, step)
        yield _loss(judgement, weights, step, count)
        for spec in trainable(scenario):
            for rank in range(scenario.mesh.num_ranks):
                gradient = gradients(spec, rank, step)
                if gradient is not None:
                    weights[spec.name, rank] -= rate * gradient.to(torch.float64)


def _loss(
    judgement: Judgement, weights: Mapping[Key, torch.Tensor], step: int, count: int
) -> float:
    if not count:
        return 0.0
    owned = judgement.reference.micro_batches
    terms = (
        (weight * owned[name, rank, step, micro_batch]).sum().item()
        for (name, rank), weight in weights.items()
        for micro_batch in range(count)
    )
    return sum(terms) / (count * judgement.scenario.mesh.num_ranks)


def _initial(judgement: Judgement) -> dict[Key, torch.Tensor]:
    """Make weights of about 1, equal where ranks hold the same part."""
    mesh = judgement.scenario.mesh
    return {
        (spec.name, rank): torch.ones(
            local_shape(mesh, spec, rank), dtype=torch.float64
        )
        for spec in trainable(judgement.scenario)
        for rank in range(mesh.num_ranks)
    }


def _learning_rate(judgement: Judgement) -> float:
    """Choose the rate at which a right step moves weights by a tenth of their size."""
    scenario = judgement.scenario
    squares = [
        judgement.reference.reduced(spec, rank, step).square().flatten()
        for step in range(scenario.num_steps)
        for spec in trainable(scenario)
        for rank in range(scenario.mesh.num_ranks)
    ]
    mean = torch.cat(squares).mean().sqrt().item()
    return _RELATIVE_UPDATE / mean if mean > 0 else 0.0


LOSS_PARITY = Method(
    "loss_parity",
    "loss parity",
    "gloo",
    losses_agree,
    "The mean loss of each of 10 steps of SGD is compared with that of the same training "
    f"in one process, within {RELATIVE_TOLERANCE:.0%} of it. That is strict: functional "
    "tests of Megatron-LM allow 1% (`test_grpo_training_loop.py`) or 5% for the LM loss. The "
    "learning rate moves weights by a tenth of their size in a step, far more than in "
    "practice, so that a wrong gradient weighs more. Losses of scenarios are linear in the "
    "parameters, hence gradients the same wherever training stands, and SGD is replayed "
    "from the gradients that each rank had after `wait()` on gloo; the other process has "
    "those of the reference. By construction it cannot see what is wrong by less than the "
    "tolerance, what no loss depends on (gradients in the wrong dtype, memory, hooks left "
    "behind, a reduction too many that changes nothing), nor races.",
)
