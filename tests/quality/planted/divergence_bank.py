"""Defects that make ranks diverge, and the report that each has to get.

No search is needed: any scenario with two buckets shows each defect.
"""

from dataclasses import dataclass

from tests.quality.planted.bank import MATCH, ORDER, WAITS, BankDefect


@dataclass(frozen=True)
class Divergence(BankDefect):
    """A defect that makes ranks diverge.

    Attributes:
        cap_bytes: Bucket cap of the scenario.
        with_data: Property and cause of the first violation on simulated ranks.
        without_data: The same on the `fake` backend, whose collectives exchange no data;
            None where it cannot play the defect.
        says: Pattern in the report on simulated ranks.
    """

    cap_bytes: int
    with_data: tuple[str, str]
    without_data: tuple[str, str] | None
    says: str


DIVERGENCES = [
    Divergence(
        "launched-as-ready", 1,
        (MATCH, "bucket_mismatch"), (MATCH, "bucket_mismatch"),
        r"met in one collective and disagree: p1 at byte 0 on rank 0 meets p0 at byte 0 on rank 1",
    ),
    Divergence(
        "rank-divergent-used-params", 1,
        (MATCH, "bucket_mismatch"), (MATCH, "bucket_mismatch"),
        r"p1 at byte 0 on rank 0 meets p0 at byte 0 on rank 1",
    ),
    Divergence(
        "rank-local-skip", 1,
        (WAITS, "deadlock"), (MATCH, "collective_missing"),
        r"rank 0: waits for rank 1 in all_reduce #1 of p0 over ranks \[0, 1\], on .* in launch",
    ),
    Divergence(
        "polls-for-absent-rank", 1,
        (WAITS, "step_bound"), None,  # works of torch's fake group are never complete
        r"rank 0: polls for rank 1 in .* of p0 .*; polls at \S*cross_rank/polls_for_absent_rank\.py:\d+ in finish",
    ),
    Divergence(
        "bucket-order-partly-broadcast", 1024,
        (MATCH, "buckets_differ"), (MATCH, "buckets_differ"),
        r"rank 1: all_reduce SUM of 4 x float32 over ranks \[0, 1\], at syncverify/bugbank/bases/view_buckets\.py",
    ),
    Divergence(
        "messages-one-by-one", 1,
        (ORDER, "opposing_messages"), None,  # no data, no batches
        r"rank 0: send of 1 x float32 over ranks \[0, 1\], at \S*cross_rank/messages_one_by_one\.py:\d+ in exchange; then",
    ),
    Divergence(
        "hook-vs-other-collective", 1,
        (MATCH, "collective_mismatch"), (MATCH, "collective_mismatch"),
        r"rank 0: all_to_all_single of 2 x int64 over ranks \[0, 1\], at syncverify/bugbank/cross_rank/hook_vs_other_collective\.py",
    ),
]  # fmt: skip
