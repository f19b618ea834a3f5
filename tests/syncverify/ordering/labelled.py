"""Micro-traces whose verdict follows from how they are made.

The first family is a product: who touches what, which bytes they share, and what lies
between the two. A case is a race if it writes, shares a byte and nothing orders it.
The others are written one by one.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

Label = Literal["legal", "race", "early free"]


@dataclass(frozen=True)
class Case:
    name: str
    label: Label
    programs: tuple[str, ...]
    semantics: Literal["stream", "host"] = "stream"


# First access, second access, whether they write.
KINDS = {
    "reads": ("r", "r", False),
    "write, read": ("w", "r", True),
    "read, write": ("r", "w", True),
    "writes": ("w", "w", True),
    "in place": ("rw", "rw", True),
}
# First bytes, second bytes, whether they share one.
BYTES = {
    "same": ("b[0:64]", "b[0:64]", True),
    "slice, bucket": ("b[16:32]", "b[0:64]", True),
    "bucket, slice": ("b[0:64]", "b[60:64]", True),
    "partial": ("b[0:33]", "b[32:64]", True),
    "adjacent": ("b[0:32]", "b[32:64]", False),
    "apart": ("b[0:8]", "b[40:64]", False),
    "other storage": ("b[0:64]", "c[0:64]", False),
    "left columns, right columns": ("b[0+4x8@8]", "b[4+4x8@8]", False),
    "columns, wider columns": ("b[0+4x8@8]", "b[2+4x8@8]", True),
    "columns, row": ("b[4+4x8@8]", "b[16:24]", True),
    "columns, gap": ("b[4+4x8@8]", "b[16:20]", False),
    "nothing": ("b[8:8]", "b[0:64]", False),
}
# What lies around the accesses {0} on main and {1} on side, whether it orders them.
ORDERS = {
    "nothing": ("{0} main; {1} side", False),
    "one stream": ("{0} main; {1} main", True),
    "wait_stream": ("{0} main; wait side main; {1} side", True),
    "wait_stream, then later work": (
        "{0} main; wait side main; r z[0:4] side; {1} side",
        True,
    ),
    "the other one waits": ("{0} main; wait main side; {1} side", False),
    "waits too late": ("{0} main; {1} side; wait side main", False),
    "waits too early": ("wait side main; {0} main; {1} side", False),
    "event": ("{0} main; mark m main; until side m; {1} side", True),
    "event recorded too early": (
        "mark m main; {0} main; until side m; {1} side",
        False,
    ),
    "old event of two": (
        "mark m main; {0} main; mark n main; until side m; {1} side",
        False,
    ),
    "event on the wrong stream": (
        "{0} main; mark m side; until side m; {1} side",
        False,
    ),
    "event never recorded": ("{0} main; until side m; {1} side", False),
    "a third stream waits": (
        "{0} main; mark m main; until third m; {1} side",
        False,
    ),
    "through a third stream": (
        "{0} main; wait third main; wait side third; {1} side",
        True,
    ),
    "through a third stream, in the wrong order": (
        "{0} main; wait side third; wait third main; {1} side",
        False,
    ),
    "host": ("{0} main; mark m main; host m; {1} side", True),
    "host waits too early": ("mark m main; {0} main; host m; {1} side", False),
    "host waits too late": ("{0} main; mark m main; {1} side; host m", False),
    "host waits for a stream that waits": (
        "{0} main; wait third main; mark m third; host m; {1} side",
        True,
    ),
    "host waits for another stream": (
        "{0} main; mark m third; host m; {1} side",
        False,
    ),
}


def pairs() -> list[Case]:
    """Return every combination."""
    return [
        Case(
            f"{kinds}: {shared}: {order}",
            "race" if writes and overlaps and not ordered else "legal",
            (program.format(f"{kind} {bytes_}", f"{other} {other_bytes}"),),
        )
        for (
            (kinds, (kind, other, writes)),
            (shared, (bytes_, other_bytes, overlaps)),
            (order, (program, ordered)),
        ) in itertools.product(KINDS.items(), BYTES.items(), ORDERS.items())
    ]


# What torch's CUDA sanitizer misses, or flags although it is legal.
SANITIZER = [
    Case(
        "a slice is written while the whole bucket is reduced",
        "race",
        ("reduce c b[0:64] main>nccl; w b[16:32] main; await c main",),
    ),
    Case(
        "a slice is written on a side stream, the bucket reduced on another",
        "race",
        ("w b[16:32] main; reduce c b[0:64] side>side",),
    ),
    Case(
        "a block is freed without record_stream while a side stream reads it",
        "early free",
        ("w b[0:8] main; wait side main; r b[0:8] side; free b main; w d[0:8] main",),
    ),
    Case(
        "the collective reads what nothing waited for",
        "race",
        ("w b[0:8] main; reduce c b[0:8] side>nccl; await c side",),
    ),
    Case(
        "nobody waits for the collective",
        "race",
        ("w b[0:8] main; reduce c b[0:8] main>nccl; r b[0:8] main",),
    ),
    Case(
        "legal: launch, wait, read, on one stream",
        "legal",
        ("w b[0:8] main; reduce c b[0:8] main>nccl; await c main; r b[0:8] main",),
    ),
    Case(
        "legal: the next stage waits for the collective on its own stream",
        "legal",
        (
            (
                "w b[0:8] main; reduce c b[0:8] main>nccl; await c side; r b[0:8] side;"
                "wait main side; w b[0:8] main"
            ),
        ),
    ),
    Case(
        "legal: two collectives on one bucket follow each other on NCCL's stream",
        "legal",
        (
            (
                "w b[0:8] main; reduce c b[0:8] main>nccl; reduce d b[0:8] main>nccl;"
                "await d main; r b[0:8] main"
            ),
        ),
    ),
    Case(
        "legal: record_stream defers the free",
        "legal",
        ("w b[0:8] main; wait side main; r b[0:8] side; free b main side",),
    ),
    Case(
        "legal: an empty tensor has no address",
        "legal",
        ("w b[0:0] main; w b[0:0] side; r b[0:64] third",),
    ),
    Case(
        "legal: the bucket is reduced while another one is written",
        "legal",
        ("w b[0:8] main; reduce c b[0:8] main>nccl; w a[0:8] main; await c main",),
    ),
]

COLLECTIVES = [
    Case(
        "synchronous: runs on the stream that issued it",
        "legal",
        ("w b[0:8] main; reduce c b[0:8] main>main; r b[0:8] main",),
    ),
    Case(
        "synchronous: another stream does not wait for it",
        "race",
        ("w b[0:8] main; reduce c b[0:8] main>main; r b[0:8] side",),
    ),
    Case(
        "the wrong stream waits",
        "race",
        ("w b[0:8] main; reduce c b[0:8] main>nccl; await c side; r b[0:8] main",),
    ),
    Case(
        "the side stream waits, and main for the side stream",
        "legal",
        (
            (
                "w b[0:8] main; wait side main; reduce c b[0:8] side>nccl; await c side;"
                "wait main side; r b[0:8] main"
            ),
        ),
    ),
    Case(
        "the side stream waits, and main waits for it too early",
        "race",
        (
            (
                "w b[0:8] main; wait side main; reduce c b[0:8] side>nccl;"
                "wait main side; await c side; r b[0:8] main"
            ),
        ),
    ),
    Case(
        "waiting for the stream that issued it is not waiting for it",
        "race",
        (
            (
                "w b[0:8] main; wait side main; reduce c b[0:8] side>nccl;"
                "wait main side; r b[0:8] main"
            ),
        ),
    ),
    Case(
        "the last of several is waited for: they share a communication stream",
        "legal",
        (
            (
                "reduce c b[0:8] main>nccl; reduce d a[0:8] main>nccl; await d main;"
                "w b[0:8] main; w a[0:8] main"
            ),
        ),
    ),
    Case(
        "the first of several is waited for",
        "race",
        (
            (
                "reduce c b[0:8] main>nccl; reduce d a[0:8] main>nccl; await c main;"
                "w a[0:8] main"
            ),
        ),
    ),
    Case(
        "two communicators reduce one bucket",
        "race",
        ("reduce c b[0:8] main>first; reduce d b[0:8] main>second",),
    ),
    Case(
        "two communicators, the second waits for the first",
        "legal",
        ("reduce c b[0:8] main>first; await c main; reduce d b[0:8] main>second",),
    ),
    Case(
        "two communicators reduce two halves",
        "legal",
        ("reduce c b[0:8] main>first; reduce d b[8:16] main>second",),
    ),
    Case(
        "two communicators read one bucket",
        "legal",
        ("gather c b[0:8] x[0:8] main>first; gather d b[0:8] y[0:8] main>second",),
    ),
    Case(
        "what is gathered from may be read meanwhile",
        "legal",
        ("w b[0:8] main; gather c b[0:8] x[0:16] main>nccl; r b[0:8] main",),
    ),
    Case(
        "what is gathered into may not",
        "race",
        ("w b[0:8] main; gather c b[0:8] x[0:16] main>nccl; r x[8:16] main",),
    ),
    Case(
        "what is gathered from may not be written",
        "race",
        ("gather c b[0:8] x[0:16] main>nccl; w b[0:8] main; await c main",),
    ),
    Case(
        "accumulated on two streams, the launch waits for one",
        "race",
        (
            (
                "w b[0:8] one; w b[8:16] two; wait side one;"
                "reduce c b[0:16] side>nccl; await c side"
            ),
        ),
    ),
    Case(
        "accumulated on two streams, the launch waits for both",
        "legal",
        (
            (
                "w b[0:8] one; w b[8:16] two; wait side one; wait side two;"
                "reduce c b[0:16] side>nccl; await c side"
            ),
        ),
    ),
    Case(
        "launched by the first gradient, while the second one comes",
        "race",
        ("w b[0:8] main; reduce c b[0:16] main>nccl; w b[8:16] main; await c main",),
    ),
    Case(
        "ping-pong: the buffer is refilled before its reduction is done",
        "race",
        (
            (
                "w b[0:8] main; reduce c b[0:8] main>nccl; w a[0:8] main;"
                "reduce d a[0:8] main>nccl; w b[0:8] main; await c main; await d main"
            ),
        ),
    ),
    Case(
        "ping-pong: it waits",
        "legal",
        (
            (
                "w b[0:8] main; reduce c b[0:8] main>nccl; w a[0:8] main;"
                "reduce d a[0:8] main>nccl; await c main; w b[0:8] main; await d main"
            ),
        ),
    ),
    Case(
        "the host waits for the stream that waited",
        "legal",
        ("reduce c b[0:8] main>nccl; await c side; mark m side; host m;w b[0:8] main",),
    ),
    Case(
        "zeroed while in flight",
        "race",
        ("w b[0:8] main; reduce c b[0:8] main>nccl; w b[0:8] main; await c main",),
    ),
    Case(
        "zeroed on the side stream, accumulated on main without waiting",
        "race",
        ("w b[0:8] side; rw b[0:8] main",),
    ),
    Case(
        "never launched, waited for all the same",
        "race",
        ("w b[0:8] main; await c side; r b[0:8] side",),
    ),
]

LIFETIMES = [
    Case(
        "used and freed on one stream",
        "legal",
        ("w b[0:8] main; free b main",),
    ),
    Case(
        "made on main, used on side, freed when main has waited",
        "legal",
        ("w b[0:8] main; wait side main; r b[0:8] side; wait main side; free b main",),
    ),
    Case(
        "freed, and main waits after that",
        "early free",
        ("w b[0:8] main; wait side main; r b[0:8] side; free b main; wait main side",),
    ),
    Case(
        "freed when the host has waited",
        "legal",
        (
            (
                "w b[0:8] main; wait side main; r b[0:8] side; mark m side; host m;"
                "free b main"
            ),
        ),
    ),
    Case(
        "the wrong stream is recorded",
        "early free",
        ("w b[0:8] main; wait side main; r b[0:8] side; free b main third",),
    ),
    Case(
        "two streams use it, one is recorded",
        "early free",
        ("r b[0:8] side; r b[0:8] third; free b main third",),
    ),
    Case(
        "two streams use it, both are recorded",
        "legal",
        ("r b[0:8] side; r b[0:8] third; free b main third side",),
    ),
    Case(
        "freed to the pool of the stream that uses it",
        "legal",
        ("w b[0:8] main; wait side main; r b[0:8] side; free b side",),
    ),
    Case(
        "freed to the pool of a stream that the writer is not ordered before",
        "early free",
        ("w b[0:8] main; free b side",),
    ),
    Case(
        "freed in flight",
        "early free",
        ("w b[0:8] main; reduce c b[0:8] main>nccl; free b main; await c main",),
    ),
    Case(
        "freed after wait()",
        "legal",
        ("w b[0:8] main; reduce c b[0:8] main>nccl; await c main; free b main",),
    ),
    Case(
        "freed after another stream's wait()",
        "early free",
        ("w b[0:8] main; reduce c b[0:8] main>nccl; await c side; free b main",),
    ),
    Case(
        "a synchronous collective is over for its own stream",
        "legal",
        ("w b[0:8] main; reduce c b[0:8] main>main; free b main",),
    ),
    Case("freed, never used", "legal", ("w a[0:8] side; free b main",)),
    Case(
        "another storage is in use",
        "legal",
        ("r a[0:8] side; w b[0:8] main; free b main",),
    ),
]

ALIKE = "w b[0:8] main; reduce c b[0:8] main>nccl; await c main; r b[0:8] main"
RANKS = [
    Case("two ranks do the same", "legal", (ALIKE, ALIKE)),
    Case(
        "one of them does not wait",
        "race",
        (ALIKE, "w b[0:8] main; reduce c b[0:8] main>nccl; r b[0:8] main"),
    ),
    Case(
        "ranks have memories of their own",
        "legal",
        ("w b[0:8] main; w a[0:8] side", "w b[0:8] side; w a[0:8] main"),
    ),
    Case(
        "a peer that started after its wait orders what comes after",
        # Rank 1 starts d when it has c, and c comes after rank 0's first write.
        "legal",
        (
            (
                "w b[0:8] main; gather c x[0:4] y[0:4] main>first;"
                "gather d z[0:4] u[0:4] side>second; await d side; w b[0:8] side"
            ),
            (
                "gather c x[0:4] y[0:4] main>first; await c main;"
                "gather d z[0:4] u[0:4] main>second; await d main"
            ),
        ),
    ),
    Case(
        "a peer that did not wait orders nothing",
        "race",
        (
            (
                "w b[0:8] main; gather c x[0:4] y[0:4] main>first;"
                "gather d z[0:4] u[0:4] side>second; await d side; w b[0:8] side"
            ),
            (
                "gather c x[0:4] y[0:4] main>first; w x[0:4] third;"
                "gather d z[0:4] u[0:4] third>second; await d main"
            ),
        ),
    ),
    Case(
        "that a peer has the result does not mean that this rank is done reading",
        "race",
        (
            (
                "gather c b[0:8] y[0:4] main>first;"
                "gather d z[0:4] u[0:4] side>second; await d side; w b[0:8] side"
            ),
            (
                "gather c b[0:8] y[0:4] main>first; await c main;"
                "gather d z[0:4] u[0:4] main>second; await d main"
            ),
        ),
    ),
    Case(
        "a peer's host waits before it starts the next one",
        "legal",
        (
            (
                "w b[0:8] main; gather c x[0:4] y[0:4] main>first;"
                "gather d z[0:4] u[0:4] side>second; await d side; w b[0:8] side"
            ),
            (
                "gather c x[0:4] y[0:4] main>first; await c main; mark m main; host m;"
                "gather d z[0:4] u[0:4] third>second; await d main"
            ),
        ),
    ),
    Case(
        "a peer launches two communicators the other way round",
        "legal",
        (
            (
                "reduce c b[0:8] main>first; reduce d a[0:8] main>second;"
                "await c main; await d main; r b[0:8] main; r a[0:8] main"
            ),
            (
                "reduce d a[0:8] main>second; reduce c b[0:8] main>first;"
                "await d main; await c main; r b[0:8] main; r a[0:8] main"
            ),
        ),
    ),
    Case(
        "a peer's trace ends before it starts",
        "legal",
        (ALIKE, "w b[0:8] main"),
    ),
    Case(
        "a peer's trace ends, the other one has a race all the same",
        "race",
        ("reduce c b[0:8] main>nccl; w b[0:8] main", ""),
    ),
    Case(
        "a deadlock ends both traces",
        "legal",
        (
            (
                "reduce c b[0:8] main>main; reduce d a[0:8] main>main; r b[0:8] main;"
                "w z[0:8] side"
            ),
            (
                "reduce d a[0:8] main>main; reduce c b[0:8] main>main; r b[0:8] main;"
                "w z[0:8] side"
            ),
        ),
    ),
    Case(
        "four ranks, one forgets that the side stream must wait",
        "race",
        (ALIKE, ALIKE, ALIKE, ALIKE.replace("main>nccl", "side>nccl")),
    ),
]

ON_HOST = [
    Case(
        "operators run in program order whatever the stream is",
        "legal",
        ("w b[0:8] main; r b[0:8] side; w b[0:8] third",),
        "host",
    ),
    Case(
        "an asynchronous collective runs beside the host",
        "race",
        ("w b[0:8] main; reduce c b[0:8] main>gloo; r b[0:8] main; await c main",),
        "host",
    ),
    Case(
        "a synchronous one does not",
        "legal",
        ("w b[0:8] main; reduce c b[0:8] main>main; r b[0:8] side",),
        "host",
    ),
    Case(
        "whoever waits, the host has waited",
        "legal",
        ("reduce c b[0:8] main>gloo; await c side; w b[0:8] main",),
        "host",
    ),
    Case(
        "two in flight run beside each other, even of one communicator",
        "race",
        ("reduce c b[0:8] main>gloo; reduce d b[0:8] main>gloo",),
        "host",
    ),
    Case(
        "the second of two was waited for, not the first",
        "race",
        (
            (
                "reduce c b[0:8] main>gloo; reduce d a[0:8] main>gloo; await d main;"
                "w b[0:8] main"
            ),
        ),
        "host",
    ),
    Case(
        "one after the other",
        "legal",
        (
            (
                "reduce c b[0:8] main>gloo; await c main; reduce d b[0:8] main>gloo;"
                "await d main; w b[0:8] main"
            ),
        ),
        "host",
    ),
    Case(
        "waiting twice is waiting once",
        "legal",
        (
            (
                "reduce c b[0:8] main>gloo; await c main; await c main;"
                "reduce d a[0:8] main>gloo; reduce e b[0:8] main>gloo;"
                "await d main; await e main"
            ),
        ),
        "host",
    ),
    Case(
        "streams do not wait for what the host has not waited for",
        "race",
        ("reduce c b[0:8] main>gloo; wait main gloo; w b[0:8] main",),
        "host",
    ),
    Case(
        "freed in flight",
        "early free",
        ("reduce c b[0:8] main>gloo; free b main; await c main",),
        "host",
    ),
    Case(
        "freed when done",
        "legal",
        ("reduce c b[0:8] main>gloo; await c main; free b main",),
        "host",
    ),
    Case("no stream can be late", "legal", ("r b[0:8] side; free b main",), "host"),
]

CASES = [*pairs(), *SANITIZER, *COLLECTIVES, *LIFETIMES, *RANKS, *ON_HOST]
