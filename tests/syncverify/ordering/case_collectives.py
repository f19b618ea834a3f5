"""One rank and its collectives, written one by one."""

from __future__ import annotations

from case import Case

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
