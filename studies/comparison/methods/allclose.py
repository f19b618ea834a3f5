"""Cross-rank comparison of replicated gradients: equal dtypes, and values by `allclose`."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from studies.comparison.methods.method import Method
from studies.comparison.verdicts import SILENT, Verdict, alarm
from syncverify.judge.properties.judgement import Judgement

RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-5, 1e-8


def replicas_are_close(judgement: Judgement) -> Verdict:
    """Compare reduced gradients between ranks that hold the same part of a parameter.

    Two gradients are close if both are None, or if their dtypes are equal and `torch.allclose`
    holds.

    Args:
        judgement: A run on gloo.

    Returns:
        An alarm at the first pair of gradients that are not close; SILENT without one.
    """
    for pair in _pairs(judgement):
        name, step, ranks = pair.parameter, pair.step, judgement.run.ranks
        mine = ranks[pair.rank].at("reduced", step)
        other = ranks[pair.first_rank].at("reduced", step)
        if mine is None or other is None:
            continue  # the step was thrown away
        if not _close(mine.gradients[name], other.gradients[name]):
            return alarm(
                f"{name} differs between ranks {pair.first_rank} and {pair.rank}, "
                f"step {step}"
            )
    return SILENT


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two ranks that hold the same part of a parameter, in one step.

    Attributes:
        parameter: Name of the parameter.
        rank: Global rank of the one.
        first_rank: Global rank of the other: the lowest that holds the part.
        step: Number of the step, from 0.
    """

    parameter: str
    rank: int
    first_rank: int
    step: int


def _pairs(judgement: Judgement) -> Iterator[_Pair]:
    """Yield each rank with the lowest rank that holds the same part, unless that is the rank."""
    for step in range(judgement.scenario.num_steps):
        for spec in judgement.scenario.trainable:
            for rank in range(judgement.scenario.mesh.num_ranks):
                # The ranks that contribute to a sum are those that hold the same part.
                first = judgement.reference.contributors(spec, rank)[0]
                if first != rank:
                    yield _Pair(spec.name, rank, first, step)


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
