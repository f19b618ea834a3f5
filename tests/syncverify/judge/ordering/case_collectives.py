"""Cases of one rank, written one by one: its collectives, and memory that it frees."""

from __future__ import annotations

from tests.syncverify.judge.ordering.case import Case

# Cases that torch's CUDA sanitizer misses, or flags although they are legal.
SANITIZER = [
    Case(
        "a slice is written while the whole bucket is reduced",
        "race",
        ("reduce c b[0:64] default>nccl; w b[16:32] default; await c default",),
    ),
    Case(
        "a slice is written on a side stream, the bucket reduced on another",
        "race",
        ("w b[16:32] default; reduce c b[0:64] side>side",),
    ),
    Case(
        "a block is freed without record_stream while a side stream reads it",
        "early free",
        (
            "w b[0:8] default; wait side default; r b[0:8] side; free b default; w d[0:8] default",
        ),
    ),
    Case(
        "the collective reads what nothing waited for",
        "race",
        ("w b[0:8] default; reduce c b[0:8] side>nccl; await c side",),
    ),
    Case(
        "nobody waits for the collective",
        "race",
        ("w b[0:8] default; reduce c b[0:8] default>nccl; r b[0:8] default",),
    ),
    Case(
        "legal: launch, wait, read, on one stream",
        "legal",
        (
            "w b[0:8] default; reduce c b[0:8] default>nccl; await c default; r b[0:8] default",
        ),
    ),
    Case(
        "legal: the next stage waits for the collective on its own stream",
        "legal",
        (
            (
                "w b[0:8] default; reduce c b[0:8] default>nccl; await c side; r b[0:8] side;"
                "wait default side; w b[0:8] default"
            ),
        ),
    ),
    Case(
        "legal: two collectives on one bucket follow each other on NCCL's stream",
        "legal",
        (
            (
                "w b[0:8] default; reduce c b[0:8] default>nccl; reduce d b[0:8] default>nccl;"
                "await d default; r b[0:8] default"
            ),
        ),
    ),
    Case(
        "legal: record_stream defers the free",
        "legal",
        ("w b[0:8] default; wait side default; r b[0:8] side; free b default side",),
    ),
    Case(
        "legal: autograd defers the free of what it gives to another stream",
        "legal",
        (
            "w b[0:8] default; wait side default; r b[0:8] side; free b default engine side",
        ),
    ),
    Case(
        "autograd knows of one stream that reads a gradient, not of the other",
        "early free",
        (
            (
                "wait side default; r b[0:8] side; r b[0:8] third; free b default engine side;"
                "w x[0:8] default"
            ),
        ),
    ),
    Case(
        "an optimizer reads beside the stream that made the gradient, and drops it",
        "early free",
        (
            (
                "wait default side; w b[0:8] default; wait side default; r b[0:8] side; free b default;"
                "w x[0:8] default; wait default side"
            ),
        ),
    ),
    Case(
        "legal: the stream that made the gradient waits before it is dropped",
        "legal",
        (
            (
                "wait default side; w b[0:8] default; wait side default; r b[0:8] side;"
                "wait default side; free b default"
            ),
        ),
    ),
    Case(
        "legal: an empty tensor has no address",
        "legal",
        ("w b[0:0] default; w b[0:0] side; r b[0:64] third",),
    ),
    Case(
        "legal: the bucket is reduced while another one is written",
        "legal",
        (
            "w b[0:8] default; reduce c b[0:8] default>nccl; w a[0:8] default; await c default",
        ),
    ),
]

COLLECTIVES = [
    Case(
        "synchronous: runs on the stream that issued it",
        "legal",
        ("w b[0:8] default; reduce c b[0:8] default>default; r b[0:8] default",),
    ),
    Case(
        "synchronous: another stream does not wait for it",
        "race",
        ("w b[0:8] default; reduce c b[0:8] default>default; r b[0:8] side",),
    ),
    Case(
        "the wrong stream waits",
        "race",
        (
            "w b[0:8] default; reduce c b[0:8] default>nccl; await c side; r b[0:8] default",
        ),
    ),
    Case(
        "the side stream waits, and default for the side stream",
        "legal",
        (
            (
                "w b[0:8] default; wait side default; reduce c b[0:8] side>nccl; await c side;"
                "wait default side; r b[0:8] default"
            ),
        ),
    ),
    Case(
        "the side stream waits, and default waits for it too early",
        "race",
        (
            (
                "w b[0:8] default; wait side default; reduce c b[0:8] side>nccl;"
                "wait default side; await c side; r b[0:8] default"
            ),
        ),
    ),
    Case(
        "waiting for the stream that issued it is not waiting for it",
        "race",
        (
            (
                "w b[0:8] default; wait side default; reduce c b[0:8] side>nccl;"
                "wait default side; r b[0:8] default"
            ),
        ),
    ),
    Case(
        "the last of several is waited for: they share a communication stream",
        "legal",
        (
            (
                "reduce c b[0:8] default>nccl; reduce d a[0:8] default>nccl; await d default;"
                "w b[0:8] default; w a[0:8] default"
            ),
        ),
    ),
    Case(
        "the first of several is waited for",
        "race",
        (
            (
                "reduce c b[0:8] default>nccl; reduce d a[0:8] default>nccl; await c default;"
                "w a[0:8] default"
            ),
        ),
    ),
    Case(
        "two communicators reduce one bucket",
        "race",
        ("reduce c b[0:8] default>first; reduce d b[0:8] default>second",),
    ),
    Case(
        "two communicators, the second waits for the first",
        "legal",
        (
            "reduce c b[0:8] default>first; await c default; reduce d b[0:8] default>second",
        ),
    ),
    Case(
        "two communicators reduce two halves",
        "legal",
        ("reduce c b[0:8] default>first; reduce d b[8:16] default>second",),
    ),
    Case(
        "two communicators read one bucket",
        "legal",
        (
            "gather c b[0:8] x[0:8] default>first; gather d b[0:8] y[0:8] default>second",
        ),
    ),
    Case(
        "what is gathered from may be read meanwhile",
        "legal",
        ("w b[0:8] default; gather c b[0:8] x[0:16] default>nccl; r b[0:8] default",),
    ),
    Case(
        "what is gathered into may not",
        "race",
        ("w b[0:8] default; gather c b[0:8] x[0:16] default>nccl; r x[8:16] default",),
    ),
    Case(
        "what is gathered from may not be written",
        "race",
        ("gather c b[0:8] x[0:16] default>nccl; w b[0:8] default; await c default",),
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
        (
            "w b[0:8] default; reduce c b[0:16] default>nccl; w b[8:16] default; await c default",
        ),
    ),
    Case(
        "ping-pong: the buffer is refilled before its reduction is done",
        "race",
        (
            (
                "w b[0:8] default; reduce c b[0:8] default>nccl; w a[0:8] default;"
                "reduce d a[0:8] default>nccl; w b[0:8] default; await c default; await d default"
            ),
        ),
    ),
    Case(
        "ping-pong: it waits",
        "legal",
        (
            (
                "w b[0:8] default; reduce c b[0:8] default>nccl; w a[0:8] default;"
                "reduce d a[0:8] default>nccl; await c default; w b[0:8] default; await d default"
            ),
        ),
    ),
    Case(
        "the host waits for the stream that waited",
        "legal",
        (
            "reduce c b[0:8] default>nccl; await c side; mark m side; host m;w b[0:8] default",
        ),
    ),
    Case(
        "zeroed while in flight",
        "race",
        (
            "w b[0:8] default; reduce c b[0:8] default>nccl; w b[0:8] default; await c default",
        ),
    ),
    Case(
        "zeroed on the side stream, accumulated on default without waiting",
        "race",
        ("w b[0:8] side; rw b[0:8] default",),
    ),
    Case(
        "never launched, waited for all the same",
        "race",
        ("w b[0:8] default; await c side; r b[0:8] side",),
    ),
]
