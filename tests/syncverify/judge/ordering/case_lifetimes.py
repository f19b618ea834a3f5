"""Lifetimes: memory that goes back to its pool while work may still use it.

The words of the traces are explained in `micro_traces.py`.
"""

from __future__ import annotations

from tests.syncverify.judge.ordering.case import cases

LIFETIMES = cases("""
legal: used and freed on one stream
    w b[0:8] default; free b default
legal: made on default, used on side, freed when default has waited
    w b[0:8] default; wait side default; r b[0:8] side; wait default side; free b default
legal: freed, and default waits before it goes on
    w b[0:8] default; wait side default; r b[0:8] side; free b default; wait default side
early free: freed, and default goes on before it waits
    w b[0:8] default; wait side default; r b[0:8] side; free b default; w c[0:8] default;
    wait default side
early free: freed by a subject, and default waits before its next traced entry
    call wait 0; w b[0:8] default; wait side default; r b[0:8] side; free b default;
    wait default side; return; w c[0:8] default
legal: freed, and the host waits before default goes on
    w b[0:8] default; wait side default; r b[0:8] side; free b default; mark m side; host m
legal: freed, and nothing gets the memory
    w b[0:8] default; wait side default; r b[0:8] side; free b default
legal: freed when the host has waited
    w b[0:8] default; wait side default; r b[0:8] side; mark m side; host m; free b default
early free: the wrong stream is recorded
    w b[0:8] default; wait side default; r b[0:8] side; free b default third; w x[0:8] default
early free: two streams use it, one is recorded
    r b[0:8] side; r b[0:8] third; free b default third; w x[0:8] default
legal: two streams use it, both are recorded
    r b[0:8] side; r b[0:8] third; free b default third side
legal: freed to the pool of the stream that uses it
    w b[0:8] default; wait side default; r b[0:8] side; free b side
early free: freed to the pool of a stream that the writer is not ordered before
    w b[0:8] default; free b side; w c[0:8] side
legal: freed to the pool of a stream that waits before it goes on
    w b[0:8] default; free b side; wait side default; w c[0:8] side
legal: freed to the pool of a stream that is not used again
    w b[0:8] default; free b side; wait side default; w c[0:8] default
legal: freed in flight, and default waits before it goes on
    w b[0:8] default; reduce c b[0:8] default>nccl; free b default; await c default
early free: freed in flight
    w b[0:8] default; reduce c b[0:8] default>nccl; free b default; w x[0:8] default;
    await c default
legal: freed after wait()
    w b[0:8] default; reduce c b[0:8] default>nccl; await c default; free b default
early free: freed after another stream's wait()
    w b[0:8] default; reduce c b[0:8] default>nccl; await c side; free b default;
    w x[0:8] default
legal: a synchronous collective is over for its own stream
    w b[0:8] default; reduce c b[0:8] default>default; free b default
early free: what is recorded is the stream that issued the collective, not the one it runs on
    wait side default; reduce c b[0:8] side>nccl; free b default side; w x[0:8] default
legal: freed, never used
    w a[0:8] side; free b default
legal: another storage is in use
    r a[0:8] side; w b[0:8] default; free b default
""")
