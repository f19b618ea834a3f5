"""Planted defects of streams and memory, with the least scenario that shows each.

What they violate does not depend on luck, so that no search is needed.
"""

from dataclasses import dataclass
from typing import Any

from planted import side_memory, side_streams
from planted.bank import AGREE, EXCLUSIVE, READ, UNBIND, VALUE

from syncverify.scenario import MeshSpec, ParameterSpec, Scenario

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
class StreamDefect:
    """A planted defect of streams or memory.

    Attributes:
        subject: The synchronizer that has it.
        twin: The one that differs by the line that is wrong.
        property: The property that tells what is wrong.
        cause: What went wrong.
        says: Part of what explains it, mostly the remedy; a line of code stands in
            brackets for its place.
        scenario: Least one that shows it.
        also: Other properties that it violates, since values are wrong too.
    """

    subject: type[Any]
    twin: type[Any]
    property: str
    cause: str
    says: str
    scenario: Scenario = ONE
    also: frozenset[str] = frozenset()


def of(module: Any, subject: str, *told: Any, **more: Any) -> StreamDefect:
    """Take the twin from what the defect is derived from."""
    found = getattr(module, subject)
    twin = found.__mro__[1]
    while "Source:" in (twin.__doc__ or ""):
        twin = twin.__mro__[1]
    return StreamDefect(found, twin, *told, **more)


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
    of(
        side_streams, "NeverForks", FILLED, "reduced_before_accumulated",
        f"insert `stream 1.wait_stream(default)` before {LAUNCH}: holds",
    ),
    of(
        side_streams, "ForksFromDefaultStream", FILLED, "reduced_before_accumulated",
        f"insert `stream 1.wait_stream(stream 2)` before {LAUNCH}: holds",
    ),
    of(
        side_streams, "WaitsForLastPacker", FILLED, "reduced_before_accumulated",
        "insert `stream 1.wait_stream(stream 2)` before "
        "[dist.all_reduce(bucket.buffer, group=group)] in reduce: holds",
        scenario=PAIR,
    ),
    of(
        side_streams, "LaunchesOnFirstGradient", EXCLUSIVE, "touched_in_flight",
        # What an order could do; that more gradients come, values tell.
        f"insert `work.wait()` of the all_reduce launched at {LAUNCH}, while `default` "
        "is current, before autograd goes on: holds",
        scenario=PAIR, also=frozenset({VALUE}),
    ),
    of(
        side_streams, "JoinsDefaultStream", EXCLUSIVE, "touched_in_flight",
        "insert `stream 1.wait_stream(stream 2)` before "
        "[bucket.buffer.div_(group.size())] in wait: holds",
    ),
    of(
        side_streams, "KeepsAnswerTooEarly", EXCLUSIVE, "touched_in_flight",
        "insert `work.wait()` of the all_reduce launched at [work = dist.all_reduce("
        "self.found, dist.ReduceOp.MAX, async_op=True)] in wait, while `default` is "
        "current, before [self.everywhere.copy_(self.found)] in keep_answer: holds",
    ),
    of(
        side_memory, "RefillsStagingEarly", EXCLUSIVE, "touched_in_flight",
        "insert `default.wait_stream(stream 1)` before [staged.copy_(bucket.buffer)] in "
        "launch: holds",
        scenario=THREE,
    ),
    of(
        side_memory, "CopiesBackOnEnqueue", EXCLUSIVE, "touched_in_flight",
        "insert `work.wait()` of the all_reduce launched at [work = dist.all_reduce("
        "copy, group=group, async_op=True)] in launch, while `stream 1` is current, "
        "before [bucket.buffer.copy_(self.held[-1][1])] in launch: holds",
        also=WRONG,
    ),
    of(
        side_streams, "NeverJoins", READ, "read_before_reduced", BEFORE_WAIT_RETURNS
    ),
    of(
        side_streams, "JoinsAtNextEntry", READ, "read_before_reduced",
        BEFORE_WAIT_RETURNS,
    ),
    of(
        side_streams, "RecordsFirstLeg", READ, "read_before_reduced",
        BEFORE_WAIT_RETURNS, scenario=TWO_AXES,
    ),
    of(
        side_streams, "LosesHandles", READ, "read_before_reduced", NOT_WAITED,
        also=WRONG,
    ),
    of(
        side_streams, "DrainsInOneHook", READ, "read_before_reduced", NOT_WAITED,
        scenario=TWO, also=WRONG,
    ),
    of(
        side_streams, "ZeroesWhatIsRead", CLEARED, "zeroed_in_flight",
        "insert `default.wait_stream(stream 1)` before [bucket.buffer.zero_()] in "
        "zero_grad: holds",
    ),
    of(
        side_streams, "NeverFinishesZeroing", CLEARED, "used_before_zeroed",
        "insert `default.wait_stream(stream 1)` before zero_grad() returns: holds",
    ),
    of(
        side_streams, "LeavesContextOpen", CONTEXT, "stream_changed",
        "expected stream 'default' to be current again after wait() of step 0, but "
        "'stream 1' is",
    ),
    of(
        side_streams, "LaunchesInWait", OVERLAP, "never_overlapped",
        f"none did; such as all_reduce SUM of 4 x float32 over ranks [0, 1], at {LAUNCH} "
        "in step 1, wait",
        scenario=TWO,
    ),
]  # fmt: skip
MEMORY = [
    of(
        side_memory, "DropsCopy", OUTLIVES, "freed_in_use",
        RECORD.format("[bucket.buffer.copy_(copy)] in launch"),
    ),
    of(
        side_memory, "FreesResultEarly", OUTLIVES, "freed_in_use",
        RECORD.format("[bucket.buffer.copy_(reduced)] in launch"),
        TWO,  # the second launch is who may get the memory
    ),
    of(
        side_memory, "ReleasesBeforeJoin", OUTLIVES, "freed_in_use",
        BEFORE_LAST_REFERENCE,
    ),
    of(
        side_memory, "AllocatesOnCallersStream", OUTLIVES, "freed_in_use",
        BEFORE_LAST_REFERENCE,
    ),
    of(
        side_memory, "LeavesBuffersBehind", UNBIND, "buffer_left",
        "the gradient of 'p0' still lies in a shared buffer after unbind()",
        scenario=PAIR,
    ),
]  # fmt: skip
STREAM_DEFECTS = [*STREAMS, *MEMORY]
TWINS = list(dict.fromkeys(defect.twin for defect in STREAM_DEFECTS))
