"""Points at which a subject synchronizes: calls that order work or keep memory, by line."""

from typing import Final, Literal, NamedTuple

from typing_extensions import override

from syncverify.trace.source_lines import SourceLine

PointKind = Literal[
    "stream_wait", "event", "host_wait", "work_wait", "record_stream", "barrier",
    "reference",
]  # fmt: skip
# The calls of each kind, in torch's words.
CALLS: Final[dict[PointKind, str]] = {
    "stream_wait": "wait_stream() or wait_event()",
    "event": "record_event()",
    "host_wait": "synchronize() or query()",
    "work_wait": "Work.wait()",
    "record_stream": "record_stream()",
    "barrier": "barrier()",
    "reference": "a reference kept after its last use",
}


class SyncPoint(NamedTuple):
    """All calls of one kind at one line of a subject."""

    kind: PointKind
    line: SourceLine

    @override
    def __str__(self) -> str:
        return f"{CALLS[self.kind]} at {self.line}"
