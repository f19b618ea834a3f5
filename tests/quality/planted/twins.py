"""Synchronizers without a defect, on which the harness has to be silent."""

from typing import Any

from planted import cross_rank, rank_divergence, side_memory
from planted.stream_bank import TWINS

from syncverify.bugbank.bases.main_grads import AveragedMainGrads, MainGrads
from syncverify.bugbank.bases.view_buckets import ViewBuckets

PLAIN: list[type[Any]] = [ViewBuckets, MainGrads, AveragedMainGrads]
# Twins of defects that are shown by one scenario each, so that others know little of them.
OF_FEW_SCENARIOS: list[type[Any]] = [
    *TWINS,
    cross_rank.ChecksAtTheEnd,
    rank_divergence.ReducesInWait,
    rank_divergence.PollsForCompletion,
    rank_divergence.ReducesEachParameter,
    rank_divergence.CountsFirst,
    rank_divergence.TellsNeighbour,
    side_memory.HoldsUntilJoined,
    side_memory.RecordsEachCopy,  # costs memory, and is right
]
