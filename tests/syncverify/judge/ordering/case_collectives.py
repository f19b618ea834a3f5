"""Cases of one rank, written one by one: its collectives, and memory that it frees.

The words of the traces are explained in `micro_traces.py`.
"""

from __future__ import annotations

from tests.syncverify.judge.ordering.case import cases

# Cases that torch's CUDA sanitizer misses, or flags although they are legal.
SANITIZER = cases("""
race: a slice is written while the whole bucket is reduced
    reduce c b[0:64] default>nccl; w b[16:32] default; await c default
race: a slice is written on a side stream, the bucket reduced on another
    w b[16:32] default; reduce c b[0:64] side>side
early free: a block is freed without record_stream while a side stream reads it
    w b[0:8] default; wait side default; r b[0:8] side; free b default; w d[0:8] default
race: the collective reads what nothing waited for
    w b[0:8] default; reduce c b[0:8] side>nccl; await c side
race: nobody waits for the collective
    w b[0:8] default; reduce c b[0:8] default>nccl; r b[0:8] default
legal: legal: launch, wait, read, on one stream
    w b[0:8] default; reduce c b[0:8] default>nccl; await c default; r b[0:8] default
legal: legal: the next stage waits for the collective on its own stream
    w b[0:8] default; reduce c b[0:8] default>nccl; await c side; r b[0:8] side;
    wait default side; w b[0:8] default
legal: legal: two collectives on one bucket follow each other on NCCL's stream
    w b[0:8] default; reduce c b[0:8] default>nccl; reduce d b[0:8] default>nccl;
    await d default; r b[0:8] default
legal: legal: record_stream defers the free
    w b[0:8] default; wait side default; r b[0:8] side; free b default side
legal: legal: autograd defers the free of what it gives to another stream
    w b[0:8] default; wait side default; r b[0:8] side; free b default engine side
early free: autograd knows of one stream that reads a gradient, not of the other
    wait side default; r b[0:8] side; r b[0:8] third; free b default engine side;
    w x[0:8] default
early free: an optimizer reads beside the stream that made the gradient, and drops it
    wait default side; w b[0:8] default; wait side default; r b[0:8] side; free b default;
    w x[0:8] default; wait default side
legal: legal: the stream that made the gradient waits before it is dropped
    wait default side; w b[0:8] default; wait side default; r b[0:8] side; wait default side;
    free b default
legal: legal: an empty tensor has no address
    w b[0:0] default; w b[0:0] side; r b[0:64] third
legal: legal: the bucket is reduced while another one is written
    w b[0:8] default; reduce c b[0:8] default>nccl; w a[0:8] default; await c default
""")

COLLECTIVES = cases("""
legal: synchronous: runs on the stream that issued it
    w b[0:8] default; reduce c b[0:8] default>default; r b[0:8] default
race: synchronous: another stream does not wait for it
    w b[0:8] default; reduce c b[0:8] default>default; r b[0:8] side
race: the wrong stream waits
    w b[0:8] default; reduce c b[0:8] default>nccl; await c side; r b[0:8] default
legal: the side stream waits, and default for the side stream
    w b[0:8] default; wait side default; reduce c b[0:8] side>nccl; await c side;
    wait default side; r b[0:8] default
race: the side stream waits, and default waits for it too early
    w b[0:8] default; wait side default; reduce c b[0:8] side>nccl; wait default side;
    await c side; r b[0:8] default
race: waiting for the stream that issued it is not waiting for it
    w b[0:8] default; wait side default; reduce c b[0:8] side>nccl; wait default side;
    r b[0:8] default
legal: the last of several is waited for: they share a communication stream
    reduce c b[0:8] default>nccl; reduce d a[0:8] default>nccl; await d default;
    w b[0:8] default; w a[0:8] default
race: the first of several is waited for
    reduce c b[0:8] default>nccl; reduce d a[0:8] default>nccl; await c default;
    w a[0:8] default
race: two communicators reduce one bucket
    reduce c b[0:8] default>first; reduce d b[0:8] default>second
legal: two communicators, the second waits for the first
    reduce c b[0:8] default>first; await c default; reduce d b[0:8] default>second
legal: two communicators reduce two halves
    reduce c b[0:8] default>first; reduce d b[8:16] default>second
legal: two communicators read one bucket
    gather c b[0:8] x[0:8] default>first; gather d b[0:8] y[0:8] default>second
legal: what is gathered from may be read meanwhile
    w b[0:8] default; gather c b[0:8] x[0:16] default>nccl; r b[0:8] default
race: what is gathered into may not
    w b[0:8] default; gather c b[0:8] x[0:16] default>nccl; r x[8:16] default
race: what is gathered from may not be written
    gather c b[0:8] x[0:16] default>nccl; w b[0:8] default; await c default
race: accumulated on two streams, the launch waits for one
    w b[0:8] one; w b[8:16] two; wait side one; reduce c b[0:16] side>nccl; await c side
legal: accumulated on two streams, the launch waits for both
    w b[0:8] one; w b[8:16] two; wait side one; wait side two; reduce c b[0:16] side>nccl;
    await c side
race: launched by the first gradient, while the second one comes
    w b[0:8] default; reduce c b[0:16] default>nccl; w b[8:16] default; await c default
race: ping-pong: the buffer is refilled before its reduction is done
    w b[0:8] default; reduce c b[0:8] default>nccl; w a[0:8] default;
    reduce d a[0:8] default>nccl; w b[0:8] default; await c default; await d default
legal: ping-pong: it waits
    w b[0:8] default; reduce c b[0:8] default>nccl; w a[0:8] default;
    reduce d a[0:8] default>nccl; await c default; w b[0:8] default; await d default
legal: the host waits for the stream that waited
    reduce c b[0:8] default>nccl; await c side; mark m side; host m; w b[0:8] default
race: zeroed while in flight
    w b[0:8] default; reduce c b[0:8] default>nccl; w b[0:8] default; await c default
race: zeroed on the side stream, accumulated on default without waiting
    w b[0:8] side; rw b[0:8] default
race: never launched, waited for all the same
    w b[0:8] default; await c side; r b[0:8] side
""")
