"""Several ranks: the order that the collectives of peers make, or do not make.

The words of the traces are explained in `micro_traces.py`.
"""

from __future__ import annotations

from tests.syncverify.judge.ordering.case import cases

RANKS = cases("""
legal: two ranks do the same
    0 w b[0:8] default; reduce c b[0:8] default>nccl; await c default; r b[0:8] default
    1 w b[0:8] default; reduce c b[0:8] default>nccl; await c default; r b[0:8] default
race: one of them does not wait
    0 w b[0:8] default; reduce c b[0:8] default>nccl; await c default; r b[0:8] default
    1 w b[0:8] default; reduce c b[0:8] default>nccl; r b[0:8] default
legal: ranks have memories of their own
    0 w b[0:8] default; w a[0:8] side
    1 w b[0:8] side; w a[0:8] default
legal: a peer that started after its wait orders what comes after
    # Rank 1 starts d when it has c, and c comes after the first write of rank 0.
    0 w b[0:8] default; gather c x[0:4] y[0:8] default>first;
      gather d z[0:4] u[0:8] side>second; await d side; w b[0:8] side
    1 gather c x[0:4] y[0:8] default>first; await c default;
      gather d z[0:4] u[0:8] default>second; await d default
race: a peer that did not wait orders nothing
    0 w b[0:8] default; gather c x[0:4] y[0:8] default>first;
      gather d z[0:4] u[0:8] side>second; await d side; w b[0:8] side
    1 gather c x[0:4] y[0:8] default>first; w x[0:4] third; gather d z[0:4] u[0:8] third>second;
      await d default
race: that a peer has the result does not mean that this rank is done reading
    0 gather c b[0:8] y[0:16] default>first; gather d z[0:4] u[0:8] side>second; await d side;
      w b[0:8] side
    1 gather c b[0:8] y[0:16] default>first; await c default;
      gather d z[0:4] u[0:8] default>second; await d default
legal: a peer's host waits before it starts the next one
    0 w b[0:8] default; gather c x[0:4] y[0:8] default>first;
      gather d z[0:4] u[0:8] side>second; await d side; w b[0:8] side
    1 gather c x[0:4] y[0:8] default>first; await c default; mark m default; host m;
      gather d z[0:4] u[0:8] third>second; await d default
legal: a synchronous collective tells its own stream what the peer had waited for
    0 w b[0:8] side; gather c x[0:4] y[0:8] side>first; gather d z[0:4] u[0:8] default>default;
      w b[0:8] default
    1 gather c x[0:4] y[0:8] default>first; await c default;
      gather d z[0:4] u[0:8] default>default
legal: a communication stream tells its next collective what the peer had waited for
    0 w b[0:8] side; gather c x[0:4] y[0:8] side>first; gather d z[0:4] u[0:8] default>second;
      reduce e b[0:8] default>second
    1 gather c x[0:4] y[0:8] default>first; await c default;
      gather d z[0:4] u[0:8] default>second; reduce e b[0:8] default>second
legal: a third rank, which comes last, is waited for
    0 w b[0:8] side; gather c x[0:4] y[0:8] side>first;
      gather d z[0:4] u[0:8] default>default over 0 1; w b[0:8] default
    1 gather c x[0:4] y[0:8] default>first; await c default;
      gather d z[0:4] u[0:8] default>default over 0 1
    2 gather c x[0:4] y[0:8] default>first
legal: a peer launches two communicators the other way round
    0 reduce c b[0:8] default>first; reduce d a[0:8] default>second; await c default;
      await d default; r b[0:8] default; r a[0:8] default
    1 reduce d a[0:8] default>second; reduce c b[0:8] default>first; await d default;
      await c default; r b[0:8] default; r a[0:8] default
legal: a peer's trace ends before its collective starts
    0 w b[0:8] default; reduce c b[0:8] default>nccl; await c default; r b[0:8] default
    1 w b[0:8] default
race: a peer's trace ends, the other one has a race all the same
    0 reduce c b[0:8] default>nccl; w b[0:8] default
    1
legal: a deadlock makes no race of the ordered work after it
    0 reduce c b[0:8] default>default; reduce d a[0:8] default>default; r b[0:8] default;
      w z[0:8] side
    1 reduce d a[0:8] default>default; reduce c b[0:8] default>default; r b[0:8] default;
      w z[0:8] side
race: a deadlock hides no race of the work after it
    0 reduce c b[0:8] default>default; reduce d a[0:8] default>default; r b[0:8] default;
      w b[0:8] side
    1 reduce d a[0:8] default>default; reduce c b[0:8] default>default; r b[0:8] default;
      w z[0:8] side
race: four ranks, one forgets that the side stream must wait
    0 w b[0:8] default; reduce c b[0:8] default>nccl; await c default; r b[0:8] default
    1 w b[0:8] default; reduce c b[0:8] default>nccl; await c default; r b[0:8] default
    2 w b[0:8] default; reduce c b[0:8] default>nccl; await c default; r b[0:8] default
    3 w b[0:8] default; reduce c b[0:8] side>nccl; await c default; r b[0:8] default
""")
