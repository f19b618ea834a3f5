"""Reports that defects of the bug bank have to get, each in the least scenario that shows it."""

from dataclasses import dataclass
from typing import Any

from syncverify.scenario.scenario import Scenario
from tests.quality.planted.planted import (
    AGREE,
    EXCLUSIVE,
    MATCH,
    ONCE,
    ORDER,
    VALUE,
    WAITS,
    ZERO,
    Identity,
    training,
)


@dataclass(frozen=True)
class Report:
    """What a report has to tell about a defect of the bank."""

    name: str
    says: str
    also: Any = frozenset[str]()
    scenario: Scenario | None = None
    identity: Identity | None = None
    without_data: Identity | None = None


UNREDUCED = "it is rank 0's own gradient, and no collective of the step sent it: "
LAUNCH = "[bucket.work = dist.all_reduce(bucket.buffer, group=group, async_op=True)] in launch"
BEFORE_WAIT_RETURNS = (
    "insert `default.wait_stream(stream 1)` before wait() returns: holds"
)
NOT_WAITED = (
    f"insert `work.wait()` of the all_reduce launched at {LAUNCH}, while `default` is "
    "current, before wait() returns: holds"
)
BEFORE_LAST_REFERENCE = (
    "insert `default.wait_stream(stream 1)` before the last reference to its memory goes "
    "away: holds"
)
RECORD = "insert `tensor.record_stream(stream 1)` after"
OR_HOLD = ", or hold a reference until its stream waited for `stream 1`: holds"
APART, IN_ONE = training(2, cap_bytes=1), training(2, cap_bytes=1024)
TWO_STEPS = training(2, cap_bytes=1, accumulations=(1, 1))
REPORTS = [
    Report("avg-divides-by-numel", ", the number of elements, not by 2"),
    Report(
        "expert-divisor-wrong-mesh",
        "it is divided by 2, the number of ranks that contribute, once more: its sum by 4 and not by "
        "2",
    ),
    Report(
        "dp-group-ignores-sequence-parallel",
        "the contributions of ranks 1, 3 are missing; as if it were reduced over mesh axes ['dp'] "
        "only",
        also={AGREE},
    ),
    Report(
        "default-group-for-no-group",
        "ranks [0, 1] met in one collective and disagree: no axis reduces p0 over these ranks",
    ),
    Report("size1-group-self-add", "it is counted twice as a whole"),
    Report("low-precision-accumulator", "it is rounded, as if summed in "),
    Report("flush-reduces-what-is-reduced", "ranks [0, 1] summed their sum again: it was reduced at", also={ONCE}),
    Report(
        "sync-first-instead-of-last",
        "rank 0 reduced in micro-batch 0 of 2 (step 0): all_reduce SUM of 1 x float32",
        also={EXCLUSIVE, VALUE},
    ),
    Report("nested-wrapper-still-syncs", "rank 0 reduced the same memory twice in step 0"),
    Report("accumulator-reset-each-backward", "micro-batches [0] of 2 are missing on every rank"),
    Report(
        "set-to-none-breaks-view",
        "it is rank 0's own gradient: `.grad` does not lie in the memory that is reduced at",
        also={AGREE},
    ),
    Report(
        "buffer-borrowed-not-zeroed",
        "gradient of 'p0' on rank 0 is not zero after zero_grad() of step 0",
        also={VALUE}, scenario=TWO_STEPS, identity=(ZERO, "gradient_left"),
    ),
    Report("view-rebound-to-hook-output", "it is the reduced gradient of step 0, reduced again"),
    Report("work-handle-empty", "rank 0: nothing orders all_reduce at", also={AGREE, VALUE}),
    Report("hooks-kept-after-unbind", "1 hook is left on 'p0' of rank 0 after unbind()"),
    Report("last-bucket-not-flushed", UNREDUCED, also={AGREE, ONCE}),
    Report("placeholder-bucket-reduced", "rank 0 raised IndexError in step 0, bind: list index out of range"),
    Report("set-iteration-order", "ranks [0, 1] met in one collective and disagree"),
    Report("cross-group-collective-order", "no rank can go on: ranks 0, 1, 2, 3 never arrive"),
    Report(
        "two-communicators-unordered",
        "ranks [0, 1] launch collectives in orders that exclude each other: a deadlock hazard on NCCL",
    ),
    Report("comm-stream-not-after-producer", f"insert `stream 1.wait_stream(default)` before {LAUNCH}: holds"),
    Report(
        "wait-only-last-hook-stream",
        "insert `stream 1.wait_stream(stream 3)` before [dist.all_reduce(bucket.buffer, group=group)]"
        " in reduce: holds",
    ),
    Report(
        "reentrant-overwrites-in-flight",
        f"insert `work.wait()` of the all_reduce launched at {LAUNCH}, while `default` is current, "
        "before autograd goes on: holds",
        also={VALUE}, scenario=IN_ONE, identity=(EXCLUSIVE, "touched_in_flight"),
    ),
    Report(
        "async-result-read-before-wait",
        "insert `work.wait()` of the all_reduce launched at [work = dist.all_reduce(self.found, "
        "dist.ReduceOp.MAX, async_op=True)] in wait, while `default` is current, before "
        "[self.everywhere.copy_(self.found)] in keep_answer: holds",
    ),
    Report(
        "pingpong-buffer-reused-early",
        "insert `default.wait_stream(stream 1)` before [staged.copy_(bucket.buffer)] in launch: holds",
    ),
    Report(
        "future-done-at-enqueue",
        "insert `work.wait()` of the all_reduce launched at [work = dist.all_reduce(copy, "
        "group=group, async_op=True)] in launch, while `stream 1` is current, before "
        "[bucket.buffer.copy_(self.held[-1][1])] in launch: holds",
        also={AGREE, VALUE},
    ),
    Report("final-join-missing", BEFORE_WAIT_RETURNS),
    Report("handles-never-kept", NOT_WAITED, also={AGREE, VALUE}),
    Report(
        "zero-grad-while-in-flight",
        "insert `default.wait_stream(stream 1)` before [bucket.buffer.zero_()] in zero_grad: holds",
    ),
    Report("zeroing-not-awaited", "insert `default.wait_stream(stream 1)` before zero_grad() returns: holds"),
    Report(
        "stream-context-left-open",
        "expected stream 'default' to be current again after wait() of step 0, but 'stream 1' is",
    ),
    Report(
        "reduction-never-overlaps",
        "none did in 2 possible steps; for example all_reduce SUM of 4 x float32 over ranks [0, 1], "
        f"at {LAUNCH} in step 1, wait",
        scenario=TWO_STEPS, identity=("overlap_is_possible", "never_overlapped"),
    ),
    Report("missing-record-stream", f"{RECORD} [bucket.buffer.copy_(copy)] in launch{OR_HOLD}"),
    Report("third-stream-stash", BEFORE_LAST_REFERENCE),
    Report("old-buckets-kept-by-grads", "the gradient of 'p0' still lies in a shared buffer after unbind()"),
    Report(
        "launched-as-ready",
        "met in one collective and disagree: p1 at byte 0 on rank 0 meets p0 at byte 0 on rank 1",
        also={AGREE, VALUE}, scenario=APART, identity=(MATCH, "bucket_mismatch"), without_data=(MATCH, "bucket_mismatch"),
    ),
    Report(
        "rank-local-skip",
        "rank 0: waits for rank 1 in all_reduce #1 of p0 over ranks [0, 1], on stream default, at "
        f"{LAUNCH}",
        also={ONCE, VALUE}, scenario=APART, identity=(WAITS, "deadlock"), without_data=(MATCH, "collective_missing"),
    ),
    Report(
        "polls-for-absent-rank",
        "rank 0: polls for rank 1 in all_reduce #1 of p0 over ranks [0, 1], on stream default, at "
        f"{LAUNCH}; polls at [while bucket.work is not None and not bucket.work.is_completed():] in "
        "finish",
        also={ONCE, VALUE}, scenario=APART, identity=(WAITS, "step_bound"),
    ),
    Report(
        "bucket-order-partly-broadcast",
        f"rank 1: all_reduce SUM of 4 x float32 over ranks [0, 1], at {LAUNCH}",
        scenario=IN_ONE, identity=(MATCH, "buckets_differ"), without_data=(MATCH, "buckets_differ"),
    ),
    Report(
        "messages-one-by-one",
        "rank 0: send of 1 x float32 over ranks [0, 1], at [dist.isend(torch.ones(1), group=group, "
        "group_dst=peer),] in exchange; then",
        scenario=APART, identity=(ORDER, "opposing_messages"),
    ),
    Report(
        "hook-vs-other-collective",
        "rank 0: all_to_all_single of 2 x int64 over ranks [0, 1], at [dist.all_to_all_single(counts,"
        " torch.ones_like(counts), group=group)] in exchange_counts",
        scenario=APART, identity=(MATCH, "collective_mismatch"), without_data=(MATCH, "collective_mismatch"),
    ),
]  # fmt: skip
