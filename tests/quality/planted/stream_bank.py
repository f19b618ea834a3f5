"""Defects of streams and memory of the bug bank, with the least scenario that shows each.

The fixed scenarios show each violation in every run, so no search is needed.
"""

from dataclasses import dataclass

from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from tests.quality.planted.bank import AGREE, EXCLUSIVE, READ, UNBIND, VALUE, BankDefect

FILLED = "reduce_reads_after_accumulation"
CLEARED = "zero_grad_waits_for_reduce"
OUTLIVES = "memory_outlives_its_streams"
CONTEXT = "stream_context_is_restored"
OVERLAP = "overlap_is_possible"


def buckets(*sizes: int, num_axes: int = 1) -> Scenario:
    """Return two steps with buckets of so many parameters each, all of one size."""
    mesh = MeshSpec((2,) * num_axes, ("dp", "cp")[:num_axes])
    names = [f"p{index}" for index in range(sum(sizes))]
    specs = tuple(ParameterSpec(name, (4,), ("R",) * num_axes) for name in names)
    return Scenario(mesh, specs, (1, 1), 16 * max(sizes))


ONE, PAIR, TWO, THREE = buckets(1), buckets(2), buckets(1, 1), buckets(1, 1, 1)
TWO_AXES = buckets(1, num_axes=2)


@dataclass(frozen=True)
class StreamDefect(BankDefect):
    """A defect of streams or memory.

    Attributes:
        property: The property that names the mistake.
        cause: Cause of the violation.
        says: Part of the explanation, mostly the remedy; a line of code in brackets stands
            for its place.
        scenario: The smallest scenario that shows the defect.
        also: Other properties that the defect violates, since values are wrong too.
    """

    property: str
    cause: str
    says: str
    scenario: Scenario = ONE
    also: frozenset[str] = frozenset()


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
RECORD = (
    "insert `tensor.record_stream(stream 1)` after {}, or hold a reference until its "
    "stream waited for `stream 1`: holds"
)
WRONG = frozenset({VALUE, AGREE})

STREAMS = [
    StreamDefect(
        "comm-stream-not-after-producer", FILLED, "reduced_before_accumulated",
        f"insert `stream 1.wait_stream(default)` before {LAUNCH}: holds",
    ),
    StreamDefect(
        "hook-runs-on-init-stream", FILLED, "reduced_before_accumulated",
        f"insert `stream 1.wait_stream(stream 2)` before {LAUNCH}: holds",
    ),
    StreamDefect(
        "wait-only-last-hook-stream", FILLED, "reduced_before_accumulated",
        "insert `stream 1.wait_stream(stream 3)` before "
        "[dist.all_reduce(bucket.buffer, group=group)] in reduce: holds",
        scenario=PAIR,
    ),
    StreamDefect(
        "reentrant-overwrites-in-flight", EXCLUSIVE, "touched_in_flight",
        # A form of the early sum, which a wait does not mend: values say so.
        f"insert `work.wait()` of the all_reduce launched at {LAUNCH}, while `default` "
        "is current, before autograd goes on: holds",
        scenario=PAIR, also=frozenset({VALUE}),
    ),
    StreamDefect(
        "finalize-on-default-stream", EXCLUSIVE, "touched_in_flight",
        "insert `stream 1.wait_stream(stream 2)` before "
        "[bucket.buffer.div_(group.size())] in wait: holds",
    ),
    StreamDefect(
        "async-result-read-before-wait", EXCLUSIVE, "touched_in_flight",
        "insert `work.wait()` of the all_reduce launched at [work = dist.all_reduce("
        "self.found, dist.ReduceOp.MAX, async_op=True)] in wait, while `default` is "
        "current, before [self.everywhere.copy_(self.found)] in keep_answer: holds",
    ),
    StreamDefect(
        "pingpong-buffer-reused-early", EXCLUSIVE, "touched_in_flight",
        "insert `default.wait_stream(stream 1)` before [staged.copy_(bucket.buffer)] in "
        "launch: holds",
        scenario=THREE,
    ),
    StreamDefect(
        "future-done-at-enqueue", EXCLUSIVE, "touched_in_flight",
        "insert `work.wait()` of the all_reduce launched at [work = dist.all_reduce("
        "copy, group=group, async_op=True)] in launch, while `stream 1` is current, "
        "before [bucket.buffer.copy_(self.held[-1][1])] in launch: holds",
        also=WRONG,
    ),
    StreamDefect(
        "final-join-missing", READ, "read_before_reduced", BEFORE_WAIT_RETURNS
    ),
    StreamDefect(
        "wait-at-entry-too-late", READ, "read_before_reduced",
        BEFORE_WAIT_RETURNS,
    ),
    StreamDefect(
        "event-after-first-leg", READ, "read_before_reduced",
        BEFORE_WAIT_RETURNS, scenario=TWO_AXES,
    ),
    StreamDefect(
        "handles-never-kept", READ, "read_before_reduced", NOT_WAITED,
        also=WRONG,
    ),
    StreamDefect(
        "drain-by-assumed-last-hook", READ, "read_before_reduced", NOT_WAITED,
        scenario=TWO, also=WRONG,
    ),
    StreamDefect(
        "zero-grad-while-in-flight", CLEARED, "zeroed_in_flight",
        "insert `default.wait_stream(stream 1)` before [bucket.buffer.zero_()] in "
        "zero_grad: holds",
    ),
    StreamDefect(
        "zeroing-not-awaited", CLEARED, "used_before_zeroed",
        "insert `default.wait_stream(stream 1)` before zero_grad() returns: holds",
    ),
    StreamDefect(
        "stream-context-left-open", CONTEXT, "stream_changed",
        "expected stream 'default' to be current again after wait() of step 0, but "
        "'stream 1' is",
    ),
    StreamDefect(
        "reduction-never-overlaps", OVERLAP, "never_overlapped",
        f"none did in 2 possible steps; for example all_reduce SUM of 4 x float32 over ranks [0, 1], at {LAUNCH} "
        "in step 1, wait",
        scenario=TWO,
    ),
]  # fmt: skip
MEMORY = [
    StreamDefect(
        "missing-record-stream", OUTLIVES, "freed_in_use",
        RECORD.format("[bucket.buffer.copy_(copy)] in launch"),
    ),
    StreamDefect(
        "freed-before-post-reduce-copy", OUTLIVES, "freed_in_use",
        RECORD.format("[bucket.buffer.copy_(reduced)] in launch"),
        TWO,  # the second launch may get the memory
    ),
    StreamDefect(
        "third-stream-stash", OUTLIVES, "freed_in_use",
        BEFORE_LAST_REFERENCE,
    ),
    StreamDefect(
        "allocated-on-wrong-stream", OUTLIVES, "freed_in_use",
        BEFORE_LAST_REFERENCE,
    ),
    StreamDefect(
        "old-buckets-kept-by-grads", UNBIND, "buffer_left",
        "the gradient of 'p0' still lies in a shared buffer after unbind()",
        scenario=PAIR,
    ),
]  # fmt: skip
STREAM_DEFECTS = [*STREAMS, *MEMORY]
TWINS = list(dict.fromkeys(defect.twin for defect in STREAM_DEFECTS))
