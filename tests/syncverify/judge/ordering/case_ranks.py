"""Several ranks: the order that the collectives of peers make, or do not make.

The words of the traces are explained in `micro_traces.py`.
"""

from __future__ import annotations

from tests.syncverify.judge.ordering.case import Case

# A rank that writes, reduces, waits and reads: legal on one rank and on several.
REDUCES = (
    "w b[0:8] default; reduce c b[0:8] default>nccl; await c default; r b[0:8] default"
)
RANKS = [
    Case("two ranks do the same", "legal", (REDUCES, REDUCES)),
    Case(
        "one of them does not wait",
        "race",
        (REDUCES, "w b[0:8] default; reduce c b[0:8] default>nccl; r b[0:8] default"),
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
                "w b[0:8] default; gather c x[0:4] y[0:8] default>first;"
                "gather d z[0:4] u[0:8] side>second; await d side; w b[0:8] side"
            ),
            (
                "gather c x[0:4] y[0:8] default>first; await c default;"
                "gather d z[0:4] u[0:8] default>second; await d default"
            ),
        ),
    ),
    Case(
        "a peer that did not wait orders nothing",
        "race",
        (
            (
                "w b[0:8] default; gather c x[0:4] y[0:8] default>first;"
                "gather d z[0:4] u[0:8] side>second; await d side; w b[0:8] side"
            ),
            (
                "gather c x[0:4] y[0:8] default>first; w x[0:4] third;"
                "gather d z[0:4] u[0:8] third>second; await d default"
            ),
        ),
    ),
    Case(
        "that a peer has the result does not mean that this rank is done reading",
        "race",
        (
            (
                "gather c b[0:8] y[0:16] default>first;"
                "gather d z[0:4] u[0:8] side>second; await d side; w b[0:8] side"
            ),
            (
                "gather c b[0:8] y[0:16] default>first; await c default;"
                "gather d z[0:4] u[0:8] default>second; await d default"
            ),
        ),
    ),
    Case(
        "a peer's host waits before it starts the next one",
        "legal",
        (
            (
                "w b[0:8] default; gather c x[0:4] y[0:8] default>first;"
                "gather d z[0:4] u[0:8] side>second; await d side; w b[0:8] side"
            ),
            (
                "gather c x[0:4] y[0:8] default>first; await c default; mark m default; host m;"
                "gather d z[0:4] u[0:8] third>second; await d default"
            ),
        ),
    ),
    Case(
        "a synchronous collective tells its own stream what the peer had waited for",
        "legal",
        (
            (
                "w b[0:8] side; gather c x[0:4] y[0:8] side>first;"
                "gather d z[0:4] u[0:8] default>default; w b[0:8] default"
            ),
            (
                "gather c x[0:4] y[0:8] default>first; await c default;"
                "gather d z[0:4] u[0:8] default>default"
            ),
        ),
    ),
    Case(
        "a communication stream tells its next collective what the peer had waited for",
        "legal",
        (
            (
                "w b[0:8] side; gather c x[0:4] y[0:8] side>first;"
                "gather d z[0:4] u[0:8] default>second; reduce e b[0:8] default>second"
            ),
            (
                "gather c x[0:4] y[0:8] default>first; await c default;"
                "gather d z[0:4] u[0:8] default>second; reduce e b[0:8] default>second"
            ),
        ),
    ),
    Case(
        "a third rank, which comes last, is waited for",
        "legal",
        (
            (
                "w b[0:8] side; gather c x[0:4] y[0:8] side>first;"
                "gather d z[0:4] u[0:8] default>default over 0 1; w b[0:8] default"
            ),
            (
                "gather c x[0:4] y[0:8] default>first; await c default;"
                "gather d z[0:4] u[0:8] default>default over 0 1"
            ),
            "gather c x[0:4] y[0:8] default>first",
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
        "a peer's trace ends before its collective starts",
        "legal",
        (REDUCES, "w b[0:8] default"),
    ),
    Case(
        "a peer's trace ends, the other one has a race all the same",
        "race",
        ("reduce c b[0:8] default>nccl; w b[0:8] default", ""),
    ),
    Case(
        "a deadlock makes no race of the ordered work after it",
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
        "a deadlock hides no race of the work after it",
        "race",
        (
            (
                "reduce c b[0:8] default>default; reduce d a[0:8] default>default; r b[0:8] default;"
                "w b[0:8] side"
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
        (REDUCES, REDUCES, REDUCES, REDUCES.replace("default>nccl", "side>nccl")),
    ),
]
