"""Lines of a subject that ran in the play of a violation: all, those that act, those that decide.

Note [Lines that decide]
    Lines of the plain path run in every scenario, and say nothing. A line decides if it ran
    in the failing scenario and in none of some scenarios that hold every property: a branch
    of an event, of a dtype, of a second bucket. Often there is none, for a wrong statement of
    the plain path runs everywhere; then nothing is shown.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, Final

from typing_extensions import override

from syncverify.explain.case import SLOW, Case
from syncverify.explain.repair.source_edit import source_of
from syncverify.search.line_probe import PlayedLines, played_lines
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.trace.records import Access, CollectiveLaunch, Moment
from syncverify.trace.source_files import is_subject_line
from syncverify.trace.source_lines import CodeLine, SourceLine, shown_path, with_code

# Numbers of the lines that ran, by file.
RanLines = Mapping[str, set[int]]
_Tracer = Callable[[FrameType, str, Any], Any]
_NUM_SHOWN: Final = 3
# A difference of many lines is another way through the subject, and no line decides.
_MAX_DECIDING: Final = 6
# Names of operators that write to an argument. The writes of a record are its new results as well.
_IN_PLACE: Final = re.compile(r"\w+\.\w+_(\.|$)")


def acts_of(case: Case) -> tuple[CodeLine, ...]:
    """Return the lines that wrote or communicated, each once, in the order in which they first ran."""
    evidence = case.found.violation.evidence
    rank, step = evidence.rank, evidence.step
    # Work without an order names its lines already.
    if rank is None or step is None or evidence.unordered is not None:
        return ()
    run = case.play(case.recorders(keeps_everything=True))
    lines = [
        record.source
        for record in run.ranks[rank].trace
        if isinstance(record, CollectiveLaunch)
        or (isinstance(record, Access) and _IN_PLACE.search(record.operator))
        if record.moment.step == step
    ]
    return with_code(dict.fromkeys(lines))


def deciding_lines(case: Case) -> tuple[CodeLine, ...]:
    """Return up to three lines with their code; see Note [Lines that decide]."""
    if case.found.violation.cause in SLOW:
        return ()
    right = [scenario for scenario, _ in case.right_scenarios()]
    if not right:
        return ()
    with played_lines(case.subject.factory) as failing:
        case.play()
    # Right scenarios are played once more: probes cost more than a play, and only these count.
    with played_lines(case.subject.factory) as passing:
        for scenario in right:
            case.backend.run(scenario, case.subject)
    deciding = [*_only_in(failing, passing)]
    return with_code(deciding[:_NUM_SHOWN]) if len(deciding) <= _MAX_DECIDING else ()


def _only_in(
    failing: Mapping[str, PlayedLines], passing: Mapping[str, PlayedLines]
) -> Iterator[SourceLine]:
    """Yield the statements that ran in the first scenario alone, in the order of files."""
    for path, lines in sorted(failing.items()):
        known = passing[path].played if path in passing else frozenset[int]()
        own = source_of(path)
        functions = own.functions if own else ()
        for number in sorted(lines.played - known):
            at = [e for e in functions if e.lineno < number <= (e.end_lineno or 0)]
            if at:
                yield SourceLine(shown_path(path), number, at[-1].name)


def lines_of_step(case: Case, *, rank: int, step: int) -> RanLines:
    """Play a violation again; return the lines that ran on a rank in bind(), unbind() and a step."""
    watched, recorders = _LineRecorder(step), case.recorders(records_accesses=False)
    recorders[rank] = watched
    case.play(recorders)
    return watched.ran


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
        is_own_step = moment.step == self._step
        self._trace(is_on=is_own_step or moment.phase in {"bind", "unbind"})

    @override
    def finish(self) -> None:
        super().finish()
        self._trace(is_on=False)

    def _trace(self, *, is_on: bool) -> None:
        """Trace calls from now on, or leave the thread to its tracer of before."""
        if is_on == self._is_tracing:
            return
        self._is_tracing = is_on
        if is_on:
            self._tracer_before = sys.gettrace()
        sys.settrace(self._called if is_on else self._tracer_before)

    def _called(self, frame: FrameType, *_: object) -> _Tracer | None:
        return self._ran if is_subject_line(frame.f_code.co_filename) else None

    def _ran(self, frame: FrameType, event: str, _: object) -> _Tracer:
        if event == "line":
            self.ran.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return self._ran
