"""Cross-rank `allclose` of gradients that replicas hold."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from studies.comparison.methods.method import Method
from studies.comparison.verdicts import SILENT, Verdict, alarm
from syncverify.judge.properties.judgement import Judgement

RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-5, 1e-8


def replicas_are_close(judgement: Judgement) -> Verdict:
    """Compare reduced gradients between ranks that hold the same part of a parameter.

    Args:
        judgement: A run on gloo.

    Returns:
        An alarm at the first pair of gradients that differ.
    """
    for replica in _replicas(judgement):
        name, step, ranks = replica.parameter, replica.step, judgement.run.ranks
        mine = ranks[replica.rank].at("reduced", step)
        other = ranks[replica.first_rank].at("reduced", step)
        if mine is None or other is None:
            continue  # the step was thrown away
        if not _close(mine.gradients[name], other.gradients[name]):
            return alarm(
                f"{name} differs between ranks {replica.first_rank} and {replica.rank}, "
                f"step {step}"
            )
    return SILENT


@dataclass(frozen=True, slots=True)
class _Replica:
    """A part of a parameter that two ranks hold, in one step.

    Attributes:
        parameter: Name of the parameter.
        rank: Global rank.
        first_rank: The first global rank that holds the same part.
        step: Number of the step, from 0.
    """

    parameter: str
    rank: int
    first_rank: int
    step: int


def _replicas(judgement: Judgement) -> Iterator[_Replica]:
    for step in range(judgement.scenario.num_steps):
        for spec in judgement.scenario.trainable:
            for rank in range(judgement.scenario.mesh.num_ranks):
                first = judgement.reference.contributors(spec, rank)[0]
                if first != rank:
                    yield _Replica(spec.name, rank, first, step)


def _close(mine: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if mine is None or other is None:
        return mine is other
    return mine.dtype == other.dtype and torch.allclose(
        mine, other, rtol=RELATIVE_TOLERANCE, atol=ABSOLUTE_TOLERANCE
    )


ALLCLOSE = Method(
    "allclose",
    "cross-rank `allclose`",
    "gloo",
    replicas_are_close,
)
