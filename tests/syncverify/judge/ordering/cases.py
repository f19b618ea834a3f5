"""Micro-traces with the verdicts that a person reached without the judge of order.

The words of the traces are explained in `micro_traces.py`.
"""

import re
from dataclasses import dataclass
from typing import Literal

Label = Literal["legal", "race", "early free"]
Semantics = Literal["stream", "host"]


@dataclass(frozen=True)
class Case:
    """Traces, and the verdict that a person has reached: one program a rank."""

    name: str
    label: Label
    programs: tuple[str, ...]
    semantics: Semantics = "stream"


def cases(text: str, semantics: Semantics = "stream") -> list[Case]:
    """Read cases: each is a line `label: name`, and the programs of its ranks below it.

    A program begins with the number of its rank where there are several.
    """
    blocks = re.split(r"\n(?=\S)", text.strip())
    return [_case(*block.partition("\n")[::2], semantics) for block in blocks]


def _case(head: str, body: str, semantics: Semantics) -> Case:
    label, _, name = head.partition(": ")
    body = re.sub(r"#.*", "", body)
    alone, *of_ranks = re.split(r"^    \d(?= |$)", body, flags=re.MULTILINE)
    programs = tuple(" ".join(each.split()) for each in of_ranks or [alone])
    return Case(name, label, programs, semantics)  # type: ignore[arg-type]  # a literal


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
legal: several streams wait for one collective
    w b[0:8] default; reduce c b[0:8] default>nccl; await c default; await c side;
    w b[0:4] default; w b[4:8] side
race: one of two streams waits for a collective
    w b[0:8] default; reduce c b[0:8] default>nccl; await c default;
    w b[0:4] default; w b[4:8] side
legal: each wait of the host orders what it queues from then on, also on a stream that saw one
    w b[0:8] default; mark m default; host m; r b[0:8] side;
    w c[0:8] default; mark n default; host n; r c[0:8] side
race: the host waits for the first of two marks
    w b[0:8] default; mark m default; host m; r b[0:8] side;
    w c[0:8] default; mark n default; r c[0:8] side
race: zeroed while in flight
    w b[0:8] default; reduce c b[0:8] default>nccl; w b[0:8] default; await c default
race: zeroed on the side stream, accumulated on default without waiting
    w b[0:8] side; rw b[0:8] default
race: never launched, waited for all the same
    w b[0:8] default; await c side; r b[0:8] side
""")

# Memory that goes back to its pool while work may still use it.
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

# The order that the collectives of peers make, or do not make.
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

# Operators that run on the host at once, and collectives that run beside it.
ON_HOST = cases(
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
