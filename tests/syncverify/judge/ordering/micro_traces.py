"""Write traces down in a line.

    w b[0:8] default          an operator on stream `default` writes 8 bytes of storage `b`
    r b[2+4x3@16] default     ... reads 3 runs of 4 bytes, 16 apart, from byte 2 on
    mark m default            an event is recorded
    until side m              `side` waits for it
    host m                    the host waits for it
    wait side default         `side.wait_stream(default)`
    reduce c1 b[0:8] default>nccl    all-reduce, issued on `default`, run on `nccl`
    gather c1 b[0:8] g[0:16] default>nccl    reads the one and writes the other
    await c1 default          `default` waits for it
    reduce c1 b[0:8] default>nccl over 0 1    of ranks 0 and 1 only; `await` likewise
    free b default            back to the pool of `default`
    free b default side       ... deferred by `record_stream(side)`
    free b*64 default side    ... 64 bytes of it
    free b default engine side    ... deferred by autograd
    call wait 1               the program calls `wait()` in step 1
    call backward 1 0         ... runs the backward of its micro-batch 0
    return                    the call returns
    @here w b[0:8] default    any statement, written in line `here`

Statements are separated by `;`. Collectives of one name on several ranks are one. A collective
reduces the gradient of the parameter that has the name of the storage: `b` here.
"""

import re
from collections.abc import Sequence

from syncverify.trace.records import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    HostWait,
    Mark,
    Moment,
    StorageFreed,
    StreamWait,
    SubjectCall,
    SubjectReturn,
    TraceRecord,
)
from syncverify.trace.regions import MemoryRegion
from syncverify.trace.source_lines import NoLine, Origin, SourceLine

AT = Moment("backward", 0, 0)
# Recorded and waited for at once, so that one number serves all.
WAIT_MARK = 0
REGION = re.compile(r"(\w)\[(\d+)(?::(\d+)|\+(\d+)x(\d+)@(\d+))\]")


def region(text: str) -> MemoryRegion:
    found = REGION.fullmatch(text)
    assert found, text
    name, start, end, run, count, distance = found.groups()
    if end is not None:
        return MemoryRegion(ord(name), int(start), int(end))
    stop = int(start) + int(run) + (int(count) - 1) * int(distance)
    return MemoryRegion(ord(name), int(start), stop, ((int(count), int(distance)),))


def traces(*programs: str) -> list[list[TraceRecord]]:
    everyone = tuple(range(len(programs)))
    return [_events(program, everyone) for program in programs]


def _events(program: str, ranks: tuple[int, ...]) -> list[TraceRecord]:
    events: list[TraceRecord] = []
    moment = AT
    for number, text in enumerate(filter(str.strip, program.split(";"))):
        source, words = labelled(f"line {number}"), text.split()
        if words[0].startswith("@"):
            source = labelled(words.pop(0)[1:])
        if words[0] == "call":
            moment = _moment(words[1:])
        group = ranks
        if "over" in words:
            words, members = words[: (at := words.index("over"))], words[at + 1 :]
            group = tuple(map(int, members))
        events += _statement(words, group, source, moment)
    return events


class Label(SourceLine):
    """A line that is printed as its label."""

    def __str__(self) -> str:
        return self.path


def labelled(label: str) -> Origin:
    is_line = label not in {"autograd", "optimizer"}
    return Label(label, 1, "") if is_line else NoLine(label)


def _moment(words: Sequence[str]) -> Moment:
    phase, step, *micro_batch = words
    return Moment(phase, int(step), *map(int, micro_batch))  # type: ignore[arg-type]  # a literal


def _statement(
    words: Sequence[str], ranks: tuple[int, ...], source: Origin, at: Moment
) -> list[TraceRecord]:
    match words:
        case ["call", *_]:
            return [SubjectCall(at, "default")]
        case ["return"]:
            return [SubjectReturn(at, "default")]
        case ["r" | "w" | "rw" as kind, text, stream]:
            touched = (region(text),)
            reads, writes = touched * ("r" in kind), touched * ("w" in kind)
            return [Access(at, stream, f"aten.{kind}", reads, writes, source)]
        case ["mark", mark, stream]:
            return [Mark(at, stream, _number(mark), source)]
        case ["until", stream, mark]:
            return [StreamWait(at, stream, _number(mark), source)]
        case ["host", mark]:
            return [HostWait(at, _number(mark), source)]
        case ["wait", waiting, awaited]:
            return [
                Mark(at, awaited, WAIT_MARK, source),
                StreamWait(at, waiting, WAIT_MARK, source),
            ]
        case ["reduce", name, text, streams]:
            return [launch(name, (text,), (text,), streams, ranks, source, at)]
        case ["gather", name, read, written, streams]:
            return [launch(name, (read,), (written,), streams, ranks, source, at)]
        case ["await", name, stream]:
            return [CollectiveWait(at, ranks, _number(name), stream)]
        case ["free", text, stream, *recorded]:
            name, _, size = text.partition("*")
            given = stream, tuple(recorded), int(size or 0)
            if recorded[:1] == ["engine"]:
                given = stream, (), int(size or 0), tuple(recorded[1:])
            return [StorageFreed(at, ord(name), *given)]
    raise ValueError(words)


def launch(
    name: str,
    reads: tuple[str, ...],
    writes: tuple[str, ...],
    streams: str,
    ranks: tuple[int, ...],
    source: Origin,
    at: Moment = AT,
) -> CollectiveLaunch:
    stream, _, communication_stream = streams.partition(">")
    return CollectiveLaunch(
        moment=at,
        ranks=ranks,
        sequence=_number(name),
        operation="all_reduce",
        reduce_op="SUM",
        dtype="float32",
        numel=1,
        regions=tuple(region(text) for text in reads),
        parameters=tuple(text[0] for text in reads),
        source=source,
        stream=stream,
        communication_stream=communication_stream or stream,
        written=tuple(region(text) for text in writes),
    )


def _number(name: str) -> int:
    return int.from_bytes(name.encode())
