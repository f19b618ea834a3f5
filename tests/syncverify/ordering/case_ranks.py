"""Lifetimes, several ranks, and the host that runs its work itself."""

from __future__ import annotations

from case import Case

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
    Case(
        "what is recorded is the stream that issued the collective, not the one it runs on",
        "early free",
        ("wait side main; reduce c b[0:8] side>nccl; free b main side",),
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
        "a synchronous collective tells its own stream what the peer had waited for",
        "legal",
        (
            (
                "w b[0:8] side; gather c x[0:4] y[0:4] side>first;"
                "gather d z[0:4] u[0:4] main>main; w b[0:8] main"
            ),
            (
                "gather c x[0:4] y[0:4] main>first; await c main;"
                "gather d z[0:4] u[0:4] main>main"
            ),
        ),
    ),
    Case(
        "a communication stream tells its next collective what the peer had waited for",
        "legal",
        (
            (
                "w b[0:8] side; gather c x[0:4] y[0:4] side>first;"
                "gather d z[0:4] u[0:4] main>second; reduce e b[0:8] main>second"
            ),
            (
                "gather c x[0:4] y[0:4] main>first; await c main;"
                "gather d z[0:4] u[0:4] main>second; reduce e b[0:8] main>second"
            ),
        ),
    ),
    Case(
        "a third rank, which comes last, is waited for",
        "legal",
        (
            (
                "w b[0:8] side; gather c x[0:4] y[0:4] side>first;"
                "gather d z[0:4] u[0:4] main>main over 0 1; w b[0:8] main"
            ),
            (
                "gather c x[0:4] y[0:4] main>first; await c main;"
                "gather d z[0:4] u[0:4] main>main over 0 1"
            ),
            "gather c x[0:4] y[0:4] main>first",
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
