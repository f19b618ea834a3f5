"""Two accesses: kinds, shared bytes, and the work between.

A combination is a race if one writes, they share a byte and nothing orders them.
"""

import itertools

from tests.syncverify.judge.ordering.cases import (
    COLLECTIVES,
    LIFETIMES,
    ON_HOST,
    RANKS,
    SANITIZER,
    Case,
)

# First access, second access, whether they write.
KINDS = {
    "reads": ("r", "r", False),
    "write, read": ("w", "r", True),
    "read, write": ("r", "w", True),
    "writes": ("w", "w", True),
    "in place": ("rw", "rw", True),
}
# First bytes, second bytes, whether they share one.
BYTES = {
    "same": ("b[0:64]", "b[0:64]", True),
    "slice, bucket": ("b[16:32]", "b[0:64]", True),
    "bucket, slice": ("b[0:64]", "b[60:64]", True),
    "partial": ("b[0:33]", "b[32:64]", True),
    "adjacent": ("b[0:32]", "b[32:64]", False),
    "apart": ("b[0:8]", "b[40:64]", False),
    "other storage": ("b[0:64]", "c[0:64]", False),
    "left columns, right columns": ("b[0+4x8@8]", "b[4+4x8@8]", False),
    "columns, wider columns": ("b[0+4x8@8]", "b[2+4x8@8]", True),
    "columns, row": ("b[4+4x8@8]", "b[16:24]", True),
    "columns, gap": ("b[4+4x8@8]", "b[16:20]", False),
    "nothing": ("b[8:8]", "b[0:64]", False),
}
# Work around the accesses {0} on default and {1} on side; whether it orders them.
ORDERS = {
    "nothing": ("{0} default; {1} side", False),
    "one stream": ("{0} default; {1} default", True),
    "wait_stream": ("{0} default; wait side default; {1} side", True),
    "wait_stream, then later work": ("{0} default; wait side default; r z[0:4] side; {1} side",
        True),
    "the other one waits": ("{0} default; wait default side; {1} side", False),
    "waits too late": ("{0} default; {1} side; wait side default", False),
    "waits too early": ("wait side default; {0} default; {1} side", False),
    "event": ("{0} default; mark m default; until side m; {1} side", True),
    "event recorded too early": ("mark m default; {0} default; until side m; {1} side", False),
    "old event of two": ("mark m default; {0} default; mark n default; until side m; {1} side",
        False),
    "event on the wrong stream": ("{0} default; mark m side; until side m; {1} side", False),
    "event never recorded": ("{0} default; until side m; {1} side", False),
    "a third stream waits": ("{0} default; mark m default; until third m; {1} side", False),
    "through a third stream": ("{0} default; wait third default; wait side third; {1} side",
        True),
    "through a third stream, in the wrong order": (
        "{0} default; wait side third; wait third default; {1} side", False),
    "host": ("{0} default; mark m default; host m; {1} side", True),
    "host waits too early": ("mark m default; {0} default; host m; {1} side", False),
    "host waits too late": ("{0} default; mark m default; {1} side; host m", False),
    "host waits for a stream that waits": (
        "{0} default; wait third default; mark m third; host m; {1} side", True),
    "host waits for another stream": ("{0} default; mark m third; host m; {1} side", False),
}  # fmt: skip


def pairs() -> list[Case]:
    return [
        Case(
            f"{kinds}: {shared}: {order}",
            "race" if writes and overlaps and not ordered else "legal",
            (program.format(f"{kind} {bytes_}", f"{other} {other_bytes}"),),
        )
        for (
            (kinds, (kind, other, writes)),
            (shared, (bytes_, other_bytes, overlaps)),
            (order, (program, ordered)),
        ) in itertools.product(KINDS.items(), BYTES.items(), ORDERS.items())
    ]


CASES = [*pairs(), *SANITIZER, *COLLECTIVES, *LIFETIMES, *RANKS, *ON_HOST]
