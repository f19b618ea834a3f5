"""Write traces down in a line.

    w b[0:8] main          an operator on stream `main` writes 8 bytes of storage `b`
    r b[2+4x3@16] main     ... reads 3 runs of 4 bytes, 16 apart, from byte 2 on
    mark m main            an event is recorded
    until side m           `side` waits for it
    host m                 the host does
    wait side main         `side.wait_stream(main)`
    reduce c1 b[0:8] main>nccl    all-reduce, issued on `main`, run on `nccl`
    gather c1 b[0:8] g[0:16] main>nccl    reads the one and writes the other
    await c1 main          `main` waits for it
    free b main            back to the pool of `main`
    free b main side       ... deferred by `record_stream(side)`

Statements are separated by `;`. Collectives of one name on several ranks are one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from syncverify.memory import MemoryRegion
from syncverify.trace import (
    Access,
    CollectiveLaunch,
    CollectiveWait,
    Event,
    HostWait,
    Mark,
    Moment,
    StorageFreed,
    StreamWait,
)

AT = Moment("backward", 0, 0)
REGION = re.compile(r"(\w)\[(\d+)(?::(\d+)|\+(\d+)x(\d+)@(\d+))\]")


def region(text: str) -> MemoryRegion:
    found = REGION.fullmatch(text)
    assert found, text
    name, start, end, run, count, distance = found.groups()
    if end is not None:
        return MemoryRegion(ord(name), int(start), int(end))
    stop = int(start) + int(run) + (int(count) - 1) * int(distance)
    return MemoryRegion(ord(name), int(start), stop, ((int(count), int(distance)),))


def traces(*programs: str) -> list[list[Event]]:
    """Return the events of each rank."""
    everyone = tuple(range(len(programs)))
    return [_events(program, everyone) for program in programs]


def _events(program: str, ranks: tuple[int, ...]) -> list[Event]:
    statements = [line.split() for line in program.split(";") if line.strip()]
    return [
        event
        for number, words in enumerate(statements)
        for event in _statement(words, ranks, f"line {number}")
    ]


def _statement(
    words: Sequence[str], ranks: tuple[int, ...], source: str
) -> list[Event]:
    match words:
        case ["r" | "w" | "rw" as kind, text, stream]:
            touched = (region(text),)
            reads, writes = touched * ("r" in kind), touched * ("w" in kind)
            return [Access(AT, stream, f"aten.{kind}", reads, writes, source)]
        case ["mark", mark, stream]:
            return [Mark(AT, stream, _number(mark), source)]
        case ["until", stream, mark]:
            return [StreamWait(AT, stream, _number(mark), source)]
        case ["host", mark]:
            return [HostWait(AT, _number(mark), source)]
        case ["wait", waiting, awaited]:
            number = -1 - int(source.split()[1])
            return [
                Mark(AT, awaited, number, source),
                StreamWait(AT, waiting, number, source),
            ]
        case ["reduce", name, text, streams]:
            return [launch(name, (text,), (text,), streams, ranks, source)]
        case ["gather", name, read, written, streams]:
            return [launch(name, (read,), (written,), streams, ranks, source)]
        case ["await", name, stream]:
            return [CollectiveWait(AT, ranks, _number(name), stream)]
        case ["free", name, stream, *recorded]:
            return [StorageFreed(AT, ord(name), stream, tuple(recorded))]
    raise ValueError(words)


def launch(
    name: str,
    reads: tuple[str, ...],
    writes: tuple[str, ...],
    streams: str,
    ranks: tuple[int, ...],
    source: str,
) -> CollectiveLaunch:
    stream, _, communication_stream = streams.partition(">")
    return CollectiveLaunch(
        moment=AT,
        ranks=ranks,
        sequence=_number(name),
        operation="all_reduce",
        reduce_op="SUM",
        dtype="float32",
        numel=1,
        regions=tuple(region(text) for text in reads),
        parameters=(),
        source=source,
        stream=stream,
        communication_stream=communication_stream or stream,
        written=tuple(region(text) for text in writes),
    )


def _number(name: str) -> int:
    return int.from_bytes(name.encode())
