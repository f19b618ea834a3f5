"""Take each synchronization point of a subject out, and look for a scenario that breaks.

Note [Two ways to take a point out]
    In the model, the records of the point are taken out of the traces, and the traces are
    judged again. That is one edge of the happens-before graph less, and takes a millisecond.
    It shows work without an order, and no effect on what the host does. So a point without
    which all traces hold is taken out of the play as well: the simulated machine ignores the
    call at that line, and all properties are judged, with one schedule of each class.

    One point is taken out at a time. Of two points that do the same, each is superfluous
    beside the other one.

Note [Parts]
    Scenarios are played in parts, by one process or several. A part does not depend on the
    number of processes, and an answer comes from the first part of its point that breaks. So
    the answers depend on the scenarios alone.
"""

import ast
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.explain.repair.source_edit import source_of
from syncverify.explain.waits import taken_out
from syncverify.explain.waits.answers import Answer, NeedWord, PlayedSubject
from syncverify.explain.waits.exposed_time import Link
from syncverify.judge.ordering.removed_points import REFERENCE
from syncverify.playing.messages import pack_subject
from syncverify.processes.calls import run_in_processes
from syncverify.scenario.replay_token import decode
from syncverify.scenario.scenario import Scenario
from syncverify.search.line_probe import modules_of
from syncverify.subjects.subject import Subject
from syncverify.trace.source_lines import SourceLine, code_of_line, shown_path
from syncverify.trace.sync_points import PointKind, SyncPoint

_PART_SIZE: Final = 100
# Names of calls that synchronize.
_KINDS: Final[dict[str, PointKind]] = {
    "wait_stream": "stream_wait",
    "wait_event": "stream_wait",
    "record_event": "event",
    "synchronize": "host_wait",
    "record_stream": "record_stream",
    "barrier": "barrier",
}
# Words in the receiver of a `wait()`, or in its annotation, that tell a handle of torch from
# other objects.
_HANDLES: Final = ("work", "handle", "future", "event")

# Receives a stage, the number of scenarios played in this stage, and the number of all.
TellStage = Callable[[str, int, int], None]
# Makes calls of a function with each of several items, as `run_in_processes` does.
MakeCalls = Callable[..., Iterable[tuple[Any, Any]]]


def call_here(
    function: Callable[[Any], Any], items: Iterable[Any], **_: object
) -> Iterator[tuple[Any, Any]]:
    """Make the calls in this process, which a call may end."""
    for item in items:
        yield item, function(item)


@dataclass(slots=True)
class WaitSearch:
    """The search for the points of one subject that are needed."""

    subject: Subject
    link: Link
    tell: TellStage
    deadline: float = math.inf
    jobs: int = 1
    names_torch: bool = False
    make_calls: MakeCalls = run_in_processes  # those that play without a point
    traces: taken_out.TracesWithout = field(default_factory=taken_out.TracesWithout)

    @property
    def wrong(self) -> tuple[str, ...]:
        """Tokens of the scenarios that break with all points."""
        points = self.traces.points.values()
        parts = (part for known in points for part in known.known_parts)
        of_plays = (each for part in parts for each in part.wrong)
        found = [*self.traces.wrong, *sorted(of_plays, key=lambda one: one.token)]
        return tuple({each.scenario: each.token for each in reversed(found)}.values())

    def played(self, num_in_scope: int, num_drawn: int) -> PlayedSubject:
        """Return the numbers of the scenarios that were played."""
        found = self.traces
        return PlayedSubject(
            name=self.subject.name,
            num_in_scope=num_in_scope,
            num_drawn=num_drawn,
            num_refused=found.num_refused,
            num_not_simulated=len(found.not_simulated),
            wrong=self.wrong,
        )

    def answers(self, scenarios: Sequence[Scenario]) -> tuple[Answer, ...]:
        """Return an answer for each point that the scenarios reach, and for calls that never ran."""
        common = taken_out.Circumstances(
            pack_subject(self.subject), self.names_torch, self.deadline, self.link
        )
        self._take_out_of_traces(common, scenarios)
        self._require_right(len(scenarios))
        self._take_out_of_plays(common)
        is_cut = self.traces.num_played < len(scenarios)
        points = self.traces.points.items()
        found = [self._answer(*each, is_cut=is_cut) for each in points]
        found += self._never_ran()
        return tuple(sorted(found, key=lambda one: one.point[::-1]))

    def _take_out_of_traces(
        self, common: taken_out.Circumstances, scenarios: Sequence[Scenario]
    ) -> None:
        parts = enumerate(_in_parts(scenarios))
        calls: MakeCalls = run_in_processes if self.jobs > 1 else call_here
        results = dict[int, taken_out.TracesWithout]()
        judge = partial(taken_out.take_out_of_traces, common)
        for (number, _), result in calls(judge, [*parts], jobs=self.jobs):
            results[number] = result
            done = sum(each.num_played for each in results.values())
            self.tell("traces without a wait", done, len(scenarios))
        for number in sorted(results):
            self.traces.add(results[number])

    def _require_right(self, num_scenarios: int) -> None:
        """Raise where no scenario is right with all waits: all are wrong or not simulated."""
        wrong, refusals = self.traces.wrong, self.traces.not_simulated
        if len(wrong) + len(refusals) < num_scenarios:
            return
        if not wrong:
            raise EnvironmentNotSupportedError(refusals[0])
        violation = wrong[0].violation
        raise UsageError(
            f"{self.subject.name} violates {violation.property} with all of its waits: "
            f"{violation.summary}; mend that first: syncverify replay {wrong[0].token} "
            f"{self.subject.name}"
        )

    def _take_out_of_plays(self, common: taken_out.Circumstances) -> None:
        """Play without each point; a lost process counts if a second process is lost as well."""
        rows = [_parts_of(*each) for each in self.traces.points.items()]
        total = sum(len(part.scenarios) for row in rows for part in row)
        num_plays, lost = 0, list[taken_out.Part]()
        for part, found in self._played(common, self._in_turn(rows)):
            num_plays += len(part.scenarios)
            self.tell("plays without a wait", num_plays, total)
            if found.token:
                lost.append(replace(part, scenarios=(decode(found.token).scenario,)))
        for part, found in self._played(common, lost):
            if not found.token:
                known = self.traces.points[part.point]
                known.parts[part.number] = taken_out.PlaysWithout(reason="process lost")

    def _played(
        self, common: taken_out.Circumstances, parts: Iterable[taken_out.Part]
    ) -> Iterator[tuple[taken_out.Part, taken_out.PlaysWithout]]:
        play = partial(taken_out.play_without, common)
        calls = self.make_calls(
            play, parts, jobs=self.jobs, lost=taken_out.of_lost_process
        )
        for part, found in calls:
            self.traces.points[part.point].parts[part.number] = found
            yield part, found

    def _in_turn(
        self, rows: Sequence[Sequence[taken_out.Part]]
    ) -> Iterator[taken_out.Part]:
        """Yield the first part of each point, then the second part of each that holds, and so on."""
        for number in range(max(map(len, rows), default=0)):
            for row in rows:
                if number < len(row) and not self.traces.points[row[0].point].harm:
                    yield row[number]

    def _answer(
        self, point: SyncPoint, known: taken_out.KnownPoint, *, is_cut: bool
    ) -> Answer:
        reasons = [each.reason for each in known.known_parts if each.reason]
        reason = reasons[0] if reasons else "time limit" if is_cut else ""
        word: NeedWord = "undecided" if reason else "superfluous"
        harm = known.harm
        if point.kind == REFERENCE and known.breaking:
            harm = taken_out.harm_of(known.breaking[0])
        if harm is not None:
            word, reason = "needed", ""
        return Answer(
            point=point,
            code=code_of_line(point.line),
            word=word,
            num_scenarios=len(known.scenarios),
            harm=harm,
            exposed_microseconds=known.exposed,
            reason=reason,
        )

    def _never_ran(self) -> Iterator[Answer]:
        """Yield an answer for each call in the subject's source that no scenario reached."""
        points = self.traces.points
        lines = {(point.line.file, point.line.number) for point in points}
        for point in calls_in(self.subject.factory, {file for file, _ in lines}):
            if (point.line.file, point.line.number) not in lines:
                code = code_of_line(point.line)
                yield Answer(point, code, "undecided", 0, reason="never ran")


def _parts_of(point: SyncPoint, known: taken_out.KnownPoint) -> list[taken_out.Part]:
    if point.kind == REFERENCE:  # no call keeps one that a play could leave out
        return []
    breaking = tuple(known.breaking)
    parts = enumerate([()] if breaking else _in_parts(known.scenarios))
    return [taken_out.Part(point, number, part, breaking) for number, part in parts]


def _in_parts(scenarios: Sequence[Scenario]) -> list[tuple[Scenario, ...]]:
    starts = range(0, len(scenarios), _PART_SIZE)
    return [tuple(scenarios[start : start + _PART_SIZE]) for start in starts]


def calls_in(
    factory: Callable[..., object], files: Collection[str]
) -> Iterator[SyncPoint]:
    """Yield the calls in the modules of a subject, and in files where one ran."""
    own = {getattr(module, "__file__", None) for module in modules_of(factory)}
    paths = sorted({*filter(None, own), *files})
    for source in filter(None, map(source_of, paths)):
        handles = {*_HANDLES, *_annotated(source.tree)}
        found = dict[int, SyncPoint]()
        for function in source.functions:  # an inner one comes after those around it
            for node in ast.walk(function):
                kind = _kind(node, handles)
                if kind is not None and isinstance(node, ast.Call):
                    at, number = shown_path(source.path), node.lineno
                    line = SourceLine(at, number, function.name)
                    found[number] = SyncPoint(kind, line)
        yield from found.values()


def _annotated(tree: ast.AST) -> Iterator[str]:
    """Yield the names of attributes and variables whose annotation is a handle."""
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(
                target=(ast.Name(id=name) | ast.Attribute(attr=name)), annotation=kind
            ) if _names_one(ast.unparse(kind), _HANDLES):
                yield name.lower()


def _kind(node: ast.AST, handles: Collection[str]) -> PointKind | None:
    """Return the kind of a call that synchronizes; None for all else."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name)) if name in _KINDS:
            return _KINDS[name]
        case ast.Call(func=ast.Attribute(attr="wait", value=receiver)):
            return "work_wait" if _names_one(ast.unparse(receiver), handles) else None
    return None


def _names_one(text: str, words: Collection[str]) -> bool:
    return any(word in text.lower() for word in words)
