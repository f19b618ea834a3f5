"""Operators that run on the host at once, and collectives that run beside it.

The words of the traces are explained in `micro_traces.py`.
"""

from __future__ import annotations

from tests.syncverify.judge.ordering.case import Case

ON_HOST = [
    Case(
        "operators run in program order whatever the stream is",
        "legal",
        ("w b[0:8] default; r b[0:8] side; w b[0:8] third",),
        semantics="host",
    ),
    Case(
        "an asynchronous collective runs beside the host",
        "race",
        (
            "w b[0:8] default; reduce c b[0:8] default>gloo; r b[0:8] default; await c default",
        ),
        semantics="host",
    ),
    Case(
        "a synchronous collective does not run beside the host",
        "legal",
        ("w b[0:8] default; reduce c b[0:8] default>default; r b[0:8] side",),
        semantics="host",
    ),
    Case(
        "a wait of any stream is a wait of the host",
        "legal",
        ("reduce c b[0:8] default>gloo; await c side; w b[0:8] default",),
        semantics="host",
    ),
    Case(
        "two in flight run beside each other, even of one communicator",
        "race",
        ("reduce c b[0:8] default>gloo; reduce d b[0:8] default>gloo",),
        semantics="host",
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
        semantics="host",
    ),
    Case(
        "the second of two starts after the first was waited for",
        "legal",
        (
            (
                "reduce c b[0:8] default>gloo; await c default; reduce d b[0:8] default>gloo;"
                "await d default; w b[0:8] default"
            ),
        ),
        semantics="host",
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
        semantics="host",
    ),
    Case(
        "streams do not wait for what the host has not waited for",
        "race",
        ("reduce c b[0:8] default>gloo; wait default gloo; w b[0:8] default",),
        semantics="host",
    ),
    Case(
        "freed in flight, beside the host",
        "early free",
        ("reduce c b[0:8] default>gloo; free b default; await c default",),
        semantics="host",
    ),
    Case(
        "freed when done",
        "legal",
        ("reduce c b[0:8] default>gloo; await c default; free b default",),
        semantics="host",
    ),
    Case(
        "no stream can be late",
        "legal",
        ("r b[0:8] side; free b default",),
        semantics="host",
    ),
]
