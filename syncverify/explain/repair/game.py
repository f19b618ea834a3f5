"""The plays of one violation, with and without a change of the subject's source."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Final

from syncverify.errors import LayerError
from syncverify.explain.repair.comparison import (
    Measured,
    is_unchanged,
    regression,
    worse_than_right,
)
from syncverify.explain.repair.cost import Cost, MeasuringRecorder, cost_of
from syncverify.explain.repair.measured_scenarios import measured_scenarios
from syncverify.explain.repair.scope import Scope, listening
from syncverify.explain.repair.slow_runs import ENDED_FROM_OUTSIDE
from syncverify.explain.repair.source_edit import (
    Edit,
    LiveFile,
    NotEditableError,
    Source,
    source_of,
)
from syncverify.judge.consequences import consequences_of
from syncverify.judge.ordering.races import is_same_work, judge_orderings
from syncverify.judge.ordering.remedies import Disorder
from syncverify.judge.properties import check
from syncverify.judge.traced import TracedRun
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Schedule
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import Fix, FoundViolation
from syncverify.search.judge import Identity
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Run
from syncverify.trace.source_files import is_subject_line
from syncverify.trace.source_lines import SourceLine, lines_among, shown_path

_MAX_LOOKS: Final = 24
# Scenarios to draw for a change that mends the first scenario.
_NUM_DRAWN: Final = 6
# Further scenarios to draw for a change that could be a fix.
_NUM_CONFIRMING: Final = 30
_MAX_RANKS: Final = 4
_SEED: Final = 0
_CONFIRMING_SEED: Final = 2
# Stands for violations that were not listed.
_SOME: Final[set[Identity]] = {("", "")}


@dataclass(frozen=True, slots=True)
class CostVerdict:
    """What a change does to the cost of the other scenarios.

    Attributes:
        regression: What gets worse, in a few words; None if nothing does.
        is_unchanged: Whether all costs stay as they were.
        early_bytes: Bytes that are launched before backward ends, with the change; of a
            regression, as far as scenarios were played.
    """

    regression: str | None
    is_unchanged: bool
    early_bytes: int


@dataclass(frozen=True, slots=True)
class MeasuredPlay:
    """A play of another scenario, which both the judge and the measure of costs look at.

    Attributes:
        identities: Violations; None if the change cannot be made.
    """

    identities: set[Identity] | None
    recorders: tuple[MeasuringRecorder, ...]
    reaches_end: bool

    def cost(self) -> Cost:
        """Return the cost of the play."""
        traces = [each.everything for each in self.recorders]
        return cost_of(traces, sum(each.peak_bytes for each in self.recorders))


@dataclass(slots=True)
class Game:
    """The plays of one violation's scenario with changes.

    Attributes:
        num_slow_runs: Number of runs that were ended from outside.
    """

    found: FoundViolation
    subject: Subject
    backend: SimBackend
    _files: dict[str, LiveFile] = field(default_factory=dict)
    _others: list[tuple[Scenario, MeasuredPlay]] | None = None
    _more: list[Scenario] | None = None
    _changed: tuple[Edit | None, dict[Scenario, MeasuredPlay]] = (None, {})
    _measured: list[Measured] | None = None
    _num_looks: int = 0
    num_slow_runs: int = 0

    def shows_violation(self) -> bool:
        """Tell whether one play shows the violation; one of chance takes two plays that differ."""
        shown = self._identities(self.found.scenario, None) or set()
        return self.found.violation.property in dict(shown)

    def mends(self, edit: Edit) -> bool:
        """Tell whether the scenario holds every property with a change."""
        return self._identities(self.found.scenario, edit) == set()

    def is_harmless(self, edit: Edit) -> bool:
        """Tell whether a change leaves other scenarios right; see `_is_right`."""
        return all(
            self._is_right(self._other(scenario, edit).identities, before.identities)
            for scenario, before in self._all_others()
        )

    def is_confirmed(self, edit: Edit) -> bool:
        """Tell whether a change leaves many more scenarios right; see `_is_right`."""
        for scenario in self._confirming():
            after = self._identities(scenario, edit)
            if after == set():
                continue
            if not self._is_right(after, self._identities(scenario, None)):
                return False
        return True

    def _is_right(
        self,
        after: set[Identity] | None,
        before: set[Identity] | None,
    ) -> bool:
        # A violation of another property may stay: the subject may have another defect. But
        # the property that is mended has to hold, and those that its violation may violate: a
        # change after which nothing is reduced has no wrong collective either.
        mended = self.found.violation.property
        depending = {mended, *consequences_of(mended)}
        return (
            after is not None
            and after <= (before or set())
            and not depending & dict(after).keys()
        )

    def cost_of(self, edit: Edit) -> CostVerdict:
        """Compare the costs of the other scenarios with those of the unchanged subject."""
        measured, costs = self._all_measured(), list[Cost]()

        def played() -> Iterator[Cost]:
            for each in measured:
                costs.append(self._other(each.scenario, edit).cost())
                yield costs[-1]

        words = regression(measured, played())
        same = words is None and is_unchanged(measured, costs)
        return CostVerdict(words, same, sum(each.early_bytes for each in costs))

    def costs_no_more_where_right(self, edit: Edit) -> bool:
        """Tell whether the other scenarios that were right cost no more with a change."""
        # Enough of a change after which each step begins as step 0, which stays as before: the
        # cost of a wrong later step is no measure.
        return not any(
            worse_than_right(each, self._other(each.scenario, edit).cost())
            for each in self._all_measured()
            if each.is_right
        )

    def _all_measured(self) -> list[Measured]:
        if self._measured is None:
            self._measured = [*self._measure()]
        return self._measured

    def _all_others(self) -> list[tuple[Scenario, MeasuredPlay]]:
        """List the other scenarios, each with its play before any change."""
        if self._others is None:
            capabilities = self.subject.capabilities
            drawing = Drawing(capabilities, _MAX_RANKS, _NUM_DRAWN, _SEED)
            own = self.found.scenario
            # The drawn ones are small: a change that breaks something breaks one of them soon.
            played = [*drawing.drawn(), *measured_scenarios(own, capabilities)]
            self._others = [
                (each, self._measured_play(each, None))
                for each in dict.fromkeys(played)
                if each != own
            ]
        return self._others

    def _confirming(self) -> list[Scenario]:
        """List scenarios for the few changes that could be a fix."""
        if self._more is None:
            known = {self.found.scenario, *(each for each, _ in self._all_others())}
            drawing = Drawing(
                self.subject.capabilities, _MAX_RANKS, _NUM_CONFIRMING, _CONFIRMING_SEED
            )
            self._more = [
                *({each: None for each in drawing.drawn() if each not in known})
            ]
        return self._more

    def _measure(self) -> Iterator[Measured]:
        # The drawn scenarios come first, and most regressions need the many parameters of others.
        for scenario, play in reversed(self._all_others()):
            yield Measured(scenario, not play.identities, play.reaches_end, play.cost())

    def _other(self, scenario: Scenario, edit: Edit) -> MeasuredPlay:
        """Play another scenario with a change, once for as long as the change is the same."""
        if self._changed[0] != edit:
            self._changed = (edit, {})
        plays = self._changed[1]
        if scenario not in plays:
            plays[scenario] = self._measured_play(scenario, edit)
        return plays[scenario]

    def _measured_play(self, scenario: Scenario, edit: Edit | None) -> MeasuredPlay:
        recorders = tuple(MeasuringRecorder() for _ in range(scenario.mesh.num_ranks))
        run = self._run(scenario, edit, recorders)
        if run is None:
            return MeasuredPlay(None, (), reaches_end=False)
        found = self._judged(scenario, run)
        return MeasuredPlay(found, recorders, reaches_end=run.fault is None)

    def look(self, edit: Edit) -> Scope:
        """Play the scenario with a line that notes the names in its scope."""
        self._num_looks += 1
        if self._num_looks > _MAX_LOOKS:
            return Scope()
        with listening() as scope:
            self._identities(self.found.scenario, edit)
        return scope

    def disorders(self) -> list[Disorder]:
        """List the missing orders of the scenario, the one that the violation tells first."""
        scenario, race = self.found.scenario, self.found.violation.evidence.unordered
        run = self.backend.run(scenario, self.subject, self.found.schedule)
        is_for_nccl = self.subject.capabilities.is_for_nccl
        found = TracedRun(run, is_for_nccl=is_for_nccl).disorders
        return sorted(
            found,
            key=lambda each: not any(is_same_work(e, race) for e in each.found if race),
        )

    def first_line_of(self, name: str) -> SourceLine | None:
        """Return the first line of the subject's method of a name."""
        method: Any = getattr(self.subject.factory, name, None)
        while hasattr(method, "__wrapped__"):
            method = method.__wrapped__
        if not isinstance(method, FunctionType):
            return None
        code = method.__code__
        if not is_subject_line(code.co_filename):
            return None
        return _first_line(code)

    def functions(self) -> Iterator[tuple[Source, ast.FunctionDef]]:
        """Yield the functions behind the violation, then other methods of the subject and its file.

        Constructors are left out: a change of what they are given only avoids a mistake.
        """
        events = self.found.violation.evidence.events
        lines = lines_among(each for event in events for each in event.origins)
        seen = set[tuple[str, int]]()
        for line in (*lines, *self._methods(), *self._beside()):
            source = source_of(line.file)
            function = source.function_at(line.number) if source else None
            place = (source.path, function.lineno) if source and function else None
            if source and function and place and place not in seen:
                seen.add(place)
                if place not in self._taking_arguments:
                    yield source, function

    def _methods(self) -> Iterator[SourceLine]:
        """Yield the methods of the subject's class and its bases, the nearest class first."""
        for owner in getattr(self.subject.factory, "__mro__", ()):
            for method in vars(owner).values():
                code = (
                    getattr(inspect.unwrap(method), "__code__", None)
                    if callable(method)
                    else None
                )
                if code is not None and is_subject_line(code.co_filename):
                    yield _first_line(code)

    def _beside(self) -> Iterator[SourceLine]:
        """Yield the methods of the other classes in the file of the subject's class."""
        path = inspect.getsourcefile(self.subject.factory) if self._is_class else None
        source = source_of(path) if path and is_subject_line(path) else None
        if source is None:
            return
        classes = (
            each for each in ast.walk(source.tree) if isinstance(each, ast.ClassDef)
        )
        for node in (each for owner in classes for each in owner.body):
            if isinstance(node, ast.FunctionDef):
                yield SourceLine(shown_path(source.path), node.lineno, node.name)

    @property
    def _taking_arguments(self) -> set[tuple[str, int]]:
        """The places of the constructors, which are given the cap and other arguments."""
        owners = getattr(self.subject.factory, "__mro__", ())
        codes = (
            getattr(vars(each).get("__init__"), "__code__", None) for each in owners
        )
        return {(code.co_filename, code.co_firstlineno) for code in codes if code}

    @property
    def _is_class(self) -> bool:
        return inspect.isclass(self.subject.factory)

    def fix(self, edit: Edit) -> Fix:
        """Describe a change that is confirmed."""
        source = self._file(edit.path).source
        start, removed = edit.first - 1, self.removed(edit)
        near = max(start - 1, 0) if not edit.num_lines else start
        function = source.function_at(near + 1)
        name = function.name if function else ""
        place = SourceLine(shown_path(edit.path), near + 1, name)
        stays = () if edit.num_lines else source.lines[near : near + 1]
        lines = [f"  {line}" for line in stays]
        lines += [f"- {line}" for line in removed]
        lines += [f"+ {' ' * edit.indent}{line}" for line in edit.lines]
        # The cost is known of these, and not of those that confirm.
        others = [each for each, _ in self._all_others()]
        most = max(each.mesh.num_ranks for each in others)
        return Fix(place, _dedented(lines), len(others), most, change=edit)

    def removed(self, edit: Edit) -> tuple[str, ...]:
        """Return the lines that go with a change, with their indentation."""
        start = edit.first - 1
        return self._file(edit.path).source.lines[start : start + edit.num_lines]

    def _identities(
        self, scenario: Scenario, edit: Edit | None
    ) -> set[Identity] | None:
        """Play a scenario; return its violations, None if the change cannot be made."""
        run = self._run(scenario, edit)
        if run is None:
            return None
        # The search for remedies takes long, and it is enough that some order is missing.
        if edit is not None and scenario == self.found.scenario and _lacks_order(run):
            return _SOME
        return self._judged(scenario, run)

    def _run(
        self,
        scenario: Scenario,
        edit: Edit | None,
        recorders: Sequence[MeasuringRecorder] | None = None,
    ) -> Run | None:
        """Play a scenario; return None if the change cannot be made."""
        is_own = scenario == self.found.scenario
        schedule = self.found.schedule if is_own else Schedule()
        try:
            with self._file(edit.path).in_force(edit) if edit else nullcontext():
                run = self.backend.run(scenario, self.subject, schedule, recorders)
        except (NotEditableError, LayerError):  # a layer is no part of the subject
            return None
        if run.fault is not None:
            self.num_slow_runs += run.fault.kind in ENDED_FROM_OUTSIDE
        return run

    def _judged(self, scenario: Scenario, run: Run) -> set[Identity]:
        found = check(scenario, run, self.subject.capabilities)
        return {violation.identity for violation in found}

    def _file(self, path: str) -> LiveFile:
        if path not in self._files:
            self._files[path] = LiveFile(path)
        return self._files[path]


def _first_line(code: CodeType) -> SourceLine:
    """Return the second line of a function, decorators included."""
    number = code.co_firstlineno + 1
    return SourceLine(shown_path(code.co_filename), number, code.co_name)


def _lacks_order(run: Run) -> bool:
    """Tell whether streams leave some work of a run without an order."""
    orderings = judge_orderings([rank_run.trace for rank_run in run.ranks])
    return bool(orderings.races or orderings.early_frees)


def _dedented(lines: list[str]) -> tuple[str, ...]:
    """Take away the indentation that all lines have after their first two characters."""
    filled = [line[2:] for line in lines if line[2:].strip()]
    common = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    return tuple(line[:2] + line[2 + common :] for line in lines)
