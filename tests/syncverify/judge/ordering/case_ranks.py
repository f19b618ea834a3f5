"""Lifetimes, several ranks, and the host that runs its work itself."""

from __future__ import annotations

from tests.syncverify.judge.ordering.case import Case

LIFETIMES = [
    Case(
        "used and freed on one stream",
        "legal",
        ("w b[0:8] default; free b default",),
    ),
    Case(
        "made on default, used on side, freed when default has waited",
        "legal",
        (
            "w b[0:8] default; wait side default; r b[0:8] side; wait default side; free b default",
        ),
    ),
    Case(
        "freed, and default waits before it goes on",
        "legal",
        (
            "w b[0:8] default; wait side default; r b[0:8] side; free b default; wait default side",
        ),
    ),
    Case(
        "freed, and default goes on before it waits",
        "early free",
        (
            (
                "w b[0:8] default; wait side default; r b[0:8] side; free b default;"
                "w c[0:8] default; wait default side"
            ),
        ),
    ),
    Case(
        "freed by a subject, and default waits before its next traced entry",
        "early free",
        (
            (
                "call wait 0; w b[0:8] default; wait side default; r b[0:8] side;"
                "free b default; wait default side; return; w c[0:8] default"
            ),
        ),
    ),
    Case(
        "freed, and the host waits before default goes on",
        "legal",
        (
            (
                "w b[0:8] default; wait side default; r b[0:8] side; free b default;"
                "mark m side; host m"
            ),
        ),
    ),
    Case(
        "freed, and nothing gets the memory",
        "legal",
        ("w b[0:8] default; wait side default; r b[0:8] side; free b default",),
    ),
    Case(
        "freed when the host has waited",
        "legal",
        (
            (
                "w b[0:8] default; wait side default; r b[0:8] side; mark m side; host m;"
                "free b default"
            ),
        ),
    ),
    Case(
        "the wrong stream is recorded",
        "early free",
        (
            "w b[0:8] default; wait side default; r b[0:8] side; free b default third; w x[0:8] default",
        ),
    ),
    Case(
        "two streams use it, one is recorded",
        "early free",
        ("r b[0:8] side; r b[0:8] third; free b default third; w x[0:8] default",),
    ),
    Case(
        "two streams use it, both are recorded",
        "legal",
        ("r b[0:8] side; r b[0:8] third; free b default third side",),
    ),
    Case(
        "freed to the pool of the stream that uses it",
        "legal",
        ("w b[0:8] default; wait side default; r b[0:8] side; free b side",),
    ),
    Case(
        "freed to the pool of a stream that the writer is not ordered before",
        "early free",
        ("w b[0:8] default; free b side; w c[0:8] side",),
    ),
    Case(
        "freed to the pool of a stream that waits before it goes on",
        "legal",
        ("w b[0:8] default; free b side; wait side default; w c[0:8] side",),
    ),
    Case(
        "freed to the pool of a stream that is not used again",
        "legal",
        ("w b[0:8] default; free b side; wait side default; w c[0:8] default",),
    ),
    Case(
        "freed in flight, and default waits before it goes on",
        "legal",
        (
            "w b[0:8] default; reduce c b[0:8] default>nccl; free b default; await c default",
        ),
    ),
    Case(
        "freed in flight",
        "early free",
        (
            (
                "w b[0:8] default; reduce c b[0:8] default>nccl; free b default;"
                "w x[0:8] default; await c default"
            ),
        ),
    ),
    Case(
        "freed after wait()",
        "legal",
        (
            "w b[0:8] default; reduce c b[0:8] default>nccl; await c default; free b default",
        ),
    ),
    Case(
        "freed after another stream's wait()",
        "early free",
        (
            (
                "w b[0:8] default; reduce c b[0:8] default>nccl; await c side; free b default;"
                "w x[0:8] default"
            ),
        ),
    ),
    Case(
        "a synchronous collective is over for its own stream",
        "legal",
        ("w b[0:8] default; reduce c b[0:8] default>default; free b default",),
    ),
    Case(
        "what is recorded is the stream that issued the collective, not the one it runs on",
        "early free",
        (
            "wait side default; reduce c b[0:8] side>nccl; free b default side; w x[0:8] default",
        ),
    ),
    Case("freed, never used", "legal", ("w a[0:8] side; free b default",)),
    Case(
        "another storage is in use",
        "legal",
        ("r a[0:8] side; w b[0:8] default; free b default",),
    ),
]

ALIKE = (
    "w b[0:8] default; reduce c b[0:8] default>nccl; await c default; r b[0:8] default"
)
RANKS = [
    Case("two ranks do the same", "legal", (ALIKE, ALIKE)),
    Case(
        "one of them does not wait",
        "race",
        (ALIKE, "w b[0:8] default; reduce c b[0:8] default>nccl; r b[0:8] default"),
    ),
    Case(
        "ranks have memories of their own",
        "legal",
        ("w b[0:8] default; w a[0:8] side", "w b[0:8] side; w a[0:8] default"),
    ),
    Case(
        "a peer that started after its wait orders what comes after",
        # Rank 1 starts d when it has c, and c comes after rank 0's first write.
        "legal",
        (
            (
                "w b[0:8] default; gather c x[0:4] y[0:4] default>first;"
                "gather d z[0:4] u[0:4] side>second; await d side; w b[0:8] side"
            ),
            (
                "gather c x[0:4] y[0:4] default>first; await c default;"
                "gather d z[0:4] u[0:4] default>second; await d default"
            ),
        ),
    ),
    Case(
        "a peer that did not wait orders nothing",
        "race",
        (
            (
                "w b[0:8] default; gather c x[0:4] y[0:4] default>first;"
                "gather d z[0:4] u[0:4] side>second; await d side; w b[0:8] side"
            ),
            (
                "gather c x[0:4] y[0:4] default>first; w x[0:4] third;"
                "gather d z[0:4] u[0:4] third>second; await d default"
            ),
        ),
    ),
    Case(
        "that a peer has the result does not mean that this rank is done reading",
        "race",
        (
            (
                "gather c b[0:8] y[0:4] default>first;"
                "gather d z[0:4] u[0:4] side>second; await d side; w b[0:8] side"
            ),
            (
                "gather c b[0:8] y[0:4] default>first; await c default;"
                "gather d z[0:4] u[0:4] default>second; await d default"
            ),
        ),
    ),
    Case(
        "a peer's host waits before it starts the next one",
        "legal",
        (
            (
                "w b[0:8] default; gather c x[0:4] y[0:4] default>first;"
                "gather d z[0:4] u[0:4] side>second; await d side; w b[0:8] side"
            ),
            (
                "gather c x[0:4] y[0:4] default>first; await c default; mark m default; host m;"
                "gather d z[0:4] u[0:4] third>second; await d default"
            ),
        ),
    ),
    Case(
        "a synchronous collective tells its own stream what the peer had waited for",
        "legal",
        (
            (
                "w b[0:8] side; gather c x[0:4] y[0:4] side>first;"
                "gather d z[0:4] u[0:4] default>default; w b[0:8] default"
            ),
            (
                "gather c x[0:4] y[0:4] default>first; await c default;"
                "gather d z[0:4] u[0:4] default>default"
            ),
        ),
    ),
    Case(
        "a communication stream tells its next collective what the peer had waited for",
        "legal",
        (
            (
                "w b[0:8] side; gather c x[0:4] y[0:4] side>first;"
                "gather d z[0:4] u[0:4] default>second; reduce e b[0:8] default>second"
            ),
            (
                "gather c x[0:4] y[0:4] default>first; await c default;"
                "gather d z[0:4] u[0:4] default>second; reduce e b[0:8] default>second"
            ),
        ),
    ),
    Case(
        "a third rank, which comes last, is waited for",
        "legal",
        (
            (
                "w b[0:8] side; gather c x[0:4] y[0:4] side>first;"
                "gather d z[0:4] u[0:4] default>default over 0 1; w b[0:8] default"
            ),
            (
                "gather c x[0:4] y[0:4] default>first; await c default;"
                "gather d z[0:4] u[0:4] default>default over 0 1"
            ),
            "gather c x[0:4] y[0:4] default>first",
        ),
    ),
    Case(
        "a peer launches two communicators the other way round",
        "legal",
        (
            (
                "reduce c b[0:8] default>first; reduce d a[0:8] default>second;"
                "await c default; await d default; r b[0:8] default; r a[0:8] default"
            ),
            (
                "reduce d a[0:8] default>second; reduce c b[0:8] default>first;"
                "await d default; await c default; r b[0:8] default; r a[0:8] default"
            ),
        ),
    ),
    Case(
        "a peer's trace ends before it starts",
        "legal",
        (ALIKE, "w b[0:8] default"),
    ),
    Case(
        "a peer's trace ends, the other one has a race all the same",
        "race",
        ("reduce c b[0:8] default>nccl; w b[0:8] default", ""),
    ),
    Case(
        "a deadlock ends both traces",
        "legal",
        (
            (
                "reduce c b[0:8] default>default; reduce d a[0:8] default>default; r b[0:8] default;"
                "w z[0:8] side"
            ),
            (
                "reduce d a[0:8] default>default; reduce c b[0:8] default>default; r b[0:8] default;"
                "w z[0:8] side"
            ),
        ),
    ),
    Case(
        "four ranks, one forgets that the side stream must wait",
        "race",
        (ALIKE, ALIKE, ALIKE, ALIKE.replace("default>nccl", "side>nccl")),
    ),
]

ON_HOST = [
    Case(
        "operators run in program order whatever the stream is",
        "legal",
        ("w b[0:8] default; r b[0:8] side; w b[0:8] third",),
        "host",
    ),
    Case(
        "an asynchronous collective runs beside the host",
        "race",
        (
            "w b[0:8] default; reduce c b[0:8] default>gloo; r b[0:8] default; await c default",
        ),
        "host",
    ),
    Case(
        "a synchronous one does not",
        "legal",
        ("w b[0:8] default; reduce c b[0:8] default>default; r b[0:8] side",),
        "host",
    ),
    Case(
        "whoever waits, the host has waited",
        "legal",
        ("reduce c b[0:8] default>gloo; await c side; w b[0:8] default",),
        "host",
    ),
    Case(
        "two in flight run beside each other, even of one communicator",
        "race",
        ("reduce c b[0:8] default>gloo; reduce d b[0:8] default>gloo",),
        "host",
    ),
    Case(
        "the second of two was waited for, not the first",
        "race",
        (
            (
                "reduce c b[0:8] default>gloo; reduce d a[0:8] default>gloo; await d default;"
                "w b[0:8] default"
            ),
        ),
        "host",
    ),
    Case(
        "one after the other",
        "legal",
        (
            (
                "reduce c b[0:8] default>gloo; await c default; reduce d b[0:8] default>gloo;"
                "await d default; w b[0:8] default"
            ),
        ),
        "host",
    ),
    Case(
        "waiting twice is waiting once",
        "legal",
        (
            (
                "reduce c b[0:8] default>gloo; await c default; await c default;"
                "reduce d a[0:8] default>gloo; reduce e b[0:8] default>gloo;"
                "await d default; await e default"
            ),
        ),
        "host",
    ),
    Case(
        "streams do not wait for what the host has not waited for",
        "race",
        ("reduce c b[0:8] default>gloo; wait default gloo; w b[0:8] default",),
        "host",
    ),
    Case(
        "freed in flight",
        "early free",
        ("reduce c b[0:8] default>gloo; free b default; await c default",),
        "host",
    ),
    Case(
        "freed when done",
        "legal",
        ("reduce c b[0:8] default>gloo; await c default; free b default",),
        "host",
    ),
    Case("no stream can be late", "legal", ("r b[0:8] side; free b default",), "host"),
]
