"""Cross-rank `allclose`: do replicas hold the same gradients?"""

from collections.abc import Iterator

import torch

from comparison.methods.method import Method
from comparison.verdicts import SILENT, Verdict, alarm
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import trainable

RELATIVE_TOLERANCE, ABSOLUTE_TOLERANCE = 1e-5, 1e-8


def replicas_are_close(judgement: Judgement) -> Verdict:
    """Compare each rank's reduced gradients with those of the first rank that holds them.

    Args:
        judgement: A run on gloo.

    Returns:
        An alarm at the first gradients that differ.
    """
    for name, rank, first, step in _replicas(judgement):
        mine, other = (
            judgement.run.ranks[each].at("reduced", step) for each in (rank, first)
        )
        if mine is None or other is None:
            continue  # the step was thrown away
        if not _close(mine.gradients[name], other.gradients[name]):
            return alarm(
                f"{name} differs between ranks {first} and {rank}, step {step}"
            )
    return SILENT


def _replicas(judgement: Judgement) -> Iterator[tuple[str, int, int, int]]:
    for step in range(judgement.scenario.num_steps):
        for spec in trainable(judgement.scenario):
            for rank in range(judgement.scenario.mesh.num_ranks):
                first = judgement.reference.contributors(spec, rank)[0]
                if first != rank:
                    yield spec.name, rank, first, step


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
    "Gradients of ranks that hold the same part of a parameter are compared after each "
    f"`wait()`, with `torch.allclose`, rtol {RELATIVE_TOLERANCE:g} and atol "
    f"{ABSOLUTE_TOLERANCE:g}, on gloo, over 10 optimizer steps. By construction it cannot "
    "see mistakes that all ranks make alike (a divisor, a lost micro-batch, a group that is "
    "too wide), gradients that are sharded over all axes, and reads that would come too "
    "early on a GPU.",
)
