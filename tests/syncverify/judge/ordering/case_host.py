"""Operators that run on the host at once, and collectives that run beside it.

The words of the traces are explained in `micro_traces.py`.
"""

from __future__ import annotations

from tests.syncverify.judge.ordering.case import cases

ON_HOST = [
    *cases(
        """
legal: operators run in program order whatever the stream is
    w b[0:8] default; r b[0:8] side; w b[0:8] third
race: an asynchronous collective runs beside the host
    w b[0:8] default; reduce c b[0:8] default>gloo; r b[0:8] default; await c default
legal: a synchronous collective does not run beside the host
    w b[0:8] default; reduce c b[0:8] default>default; r b[0:8] side
legal: a wait of any stream is a wait of the host
    reduce c b[0:8] default>gloo; await c side; w b[0:8] default
race: two in flight run beside each other, even of one communicator
    reduce c b[0:8] default>gloo; reduce d b[0:8] default>gloo
race: the second of two was waited for, not the first
    reduce c b[0:8] default>gloo; reduce d a[0:8] default>gloo; await d default;
    w b[0:8] default
legal: the second of two starts after the first was waited for
    reduce c b[0:8] default>gloo; await c default; reduce d b[0:8] default>gloo;
    await d default; w b[0:8] default
legal: waiting twice is waiting once
    reduce c b[0:8] default>gloo; await c default; await c default;
    reduce d a[0:8] default>gloo; reduce e b[0:8] default>gloo; await d default; await e default
race: streams do not wait for what the host has not waited for
    reduce c b[0:8] default>gloo; wait default gloo; w b[0:8] default
early free: freed in flight, beside the host
    reduce c b[0:8] default>gloo; free b default; await c default
legal: freed when done
    reduce c b[0:8] default>gloo; await c default; free b default
legal: no stream can be late
    r b[0:8] side; free b default
""",
        "host",
    )
]
