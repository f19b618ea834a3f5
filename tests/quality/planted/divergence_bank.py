"""Defects by which ranks part ways, and what the harness has to say about each."""

from typing import Any

from planted import rank_divergence as planted
from planted.bank import MATCH, ORDER, WAITS

from syncverify.bugbank.bases.view_buckets import ViewBuckets

# Defect, its twin, bytes of the cap, and the first violation with what the report says:
# where collectives exchange data, and where they do not.
DIVERGENCES: list[tuple[Any, ...]] = [
    (
        planted.SwapsBuckets, planted.ReducesInWait, 1,
        (MATCH, "bucket_mismatch"), (MATCH, "bucket_mismatch"),
        r"met in one collective and disagree: p1 at byte 0 on rank 0 meets p0 at byte 0 on rank 1",
    ),
    (
        planted.ReducesUsedParameters, planted.ReducesEachParameter, 1,
        (MATCH, "bucket_mismatch"), (MATCH, "bucket_mismatch"),
        r"p1 at byte 0 on rank 0 meets p0 at byte 0 on rank 1",
    ),
    (
        planted.SkipsBucketsByItself, planted.ReducesInWait, 1,
        (WAITS, "deadlock"), (MATCH, "collective_missing"),
        r"rank 0: waits for rank 1 in all_reduce #1 of p0 over ranks \[0, 1\], on .* in launch",
    ),
    (
        planted.PollsForAbsentRank, planted.PollsForCompletion, 1,
        (WAITS, "step_bound"), None,  # works of torch's fake group are never complete
        r"rank 0: polls for rank 1 in .* of p0 .*; polls at planted/.*\.py:\d+ in finish",
    ),
    (
        planted.CutsAtItsOwnCap, ViewBuckets, 1024,
        (MATCH, "collective_mismatch"), (MATCH, "collective_mismatch"),
        r"rank 1: all_reduce SUM of 4 x float32 over ranks \[0, 1\], at bases/view_buckets\.py",
    ),
    (
        planted.TellsNeighbourOneByOne, planted.TellsNeighbour, 1,
        (ORDER, "opposing_messages"), None,  # no data, no batches
        r"rank 0: send of 1 x float32 over ranks \[0, 1\], at planted/.* in exchange; then",
    ),
    (
        planted.CountsAfterwardsAsWell, planted.CountsFirst, 1,
        (MATCH, "collective_mismatch"), (MATCH, "collective_mismatch"),
        r"rank 0: all_to_all_single of 2 x int64 over ranks \[0, 1\], at planted/",
    ),
]  # fmt: skip
