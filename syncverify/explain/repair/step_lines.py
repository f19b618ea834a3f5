"""Lines of a subject that run on one rank in one step, and in bind() and unbind()."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from typing_extensions import override

from syncverify.playing.sim import SimBackend
from syncverify.search.found_violation import FoundViolation
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.subjects.subject import Subject
from syncverify.trace.records import Moment
from syncverify.trace.source_files import is_subject_line

# Numbers of the lines that ran, by file.
RanLines = Mapping[str, set[int]]
_Tracer = Callable[[FrameType, str, Any], Any]


def lines_of_step(
    found: FoundViolation,
    subject: Subject,
    backend: SimBackend,
    *,
    rank: int,
    step: int,
) -> RanLines:
    """Play a violation again; return the lines that ran on a rank in bind(), unbind() and a step."""
    recorders = [
        _LineRecorder(step) if each == rank else RankRecorder(records_accesses=False)
        for each in range(found.scenario.mesh.num_ranks)
    ]
    backend.run(found.scenario, subject, found.schedule, recorders)
    watched = recorders[rank]
    return watched.ran if isinstance(watched, _LineRecorder) else {}


class _LineRecorder(RankRecorder):
    """Traces the lines of the subject on its rank's thread, in bind(), unbind() and one step."""

    def __init__(self, step: int) -> None:
        super().__init__(records_accesses=False)
        self.ran: dict[str, set[int]] = {}
        self._step = step
        self._tracer_before: Any = None
        self._is_tracing = False

    @override
    def enter(self, moment: Moment) -> None:
        super().enter(moment)
        is_watched = moment.phase in {"bind", "unbind"} or moment.step == self._step
        if is_watched != self._is_tracing:
            self._trace(is_on=is_watched)

    @override
    def finish(self) -> None:
        super().finish()
        if self._is_tracing:
            self._trace(is_on=False)

    def _trace(self, *, is_on: bool) -> None:
        """Trace calls from now on, or leave the thread to its tracer of before."""
        self._is_tracing = is_on
        if is_on:
            self._tracer_before = sys.gettrace()
        sys.settrace(self._called if is_on else self._tracer_before)

    def _called(self, frame: FrameType, event: str, argument: object) -> _Tracer | None:
        del event, argument
        return self._ran if is_subject_line(frame.f_code.co_filename) else None

    def _ran(self, frame: FrameType, event: str, argument: object) -> _Tracer:
        del argument
        if event == "line":
            self.ran.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return self._ran
