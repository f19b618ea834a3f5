"""Lifetimes: memory that goes back to its pool while work may still use it.

The words of the traces are explained in `micro_traces.py`.
"""

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
