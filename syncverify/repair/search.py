"""Look for a fix: change the subject's source, and play the scenario with each change.

Note [A fix was played]
    A change counts if the scenario then holds every property, and if scenarios that were
    drawn hold the property that it mends and those that depend on it, and show no violation that
    they do not show without it. So a fix is right as far as it was played; it need not be the
    fix that the author would make.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any, Final

from syncverify.backends.sim import SimBackend
from syncverify.judge.ordering.races import is_same_work, judge_orderings
from syncverify.judge.ordering.remedies import Disorder
from syncverify.judge.properties import check
from syncverify.judge.properties.consequences import consequences_of
from syncverify.judge.properties.judgement import Judgement
from syncverify.judge.reference import reference
from syncverify.repair.missing_orders import candidates
from syncverify.repair.mutations import compared_attributes, mutations
from syncverify.repair.scope import Scope, listening
from syncverify.repair.source_edit import (
    Edit,
    LiveFile,
    NotEditableError,
    Source,
    source_of,
)
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Schedule
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.sim.turns.decisions import Decisions, Following
from syncverify.subjects.subject import Subject
from syncverify.trace.run import Run
from syncverify.trace.source_lines import is_subject_line, shown_path
from syncverify.witness.fix import Fix

_MAX_PLAYED: Final = 120  # changes to play for one violation
_MAX_LOOKS: Final = 24
_NUM_OTHERS: Final = 6  # scenarios to draw for a change that mends the first one
_MAX_RANKS: Final = 4
_SEED: Final = 0
_MAX_SLOW_RUNS: Final = 1  # a change may make a program hang
_SOME: Final = {("", "")}
# Each play of such a run takes seconds.
_SLOW: Final = frozenset({"never_returns", "process_died"})


def find_fix(
    found: FoundViolation, subject: Subject, backend: SimBackend
) -> Fix | None:
    """Return a change of the subject's source that mends a violation; None if none is known."""
    if found.violation.cause in _SLOW:
        return None
    game = Game(found, subject, backend)
    if not game.shows_violation():
        return None
    for edit in itertools.islice(_candidates(game), _MAX_PLAYED):
        if game.num_slow_runs > _MAX_SLOW_RUNS:
            return None
        if game.mends(edit) and (num_others := game.harmless_in(edit)) is not None:
            return game.fix(edit, num_others)
    return None


def _candidates(game: Game) -> Iterator[Edit]:
    if game.found.violation.unordered is not None:
        for disorder in game.disorders():
            yield from candidates(disorder, game.first_line_of, game.look)
    # A change of what a subject is given, such as a cap, only avoids a mistake.
    functions = [each for each in game.functions() if each[1].name != "__init__"]
    attributes = compared_attributes(source.tree for source, _ in functions)
    for source, function in functions:
        yield from mutations(source, function, attributes)


@dataclass(slots=True)
class Game:
    """The plays of one violation's scenario with changes."""

    found: FoundViolation
    subject: Subject
    backend: SimBackend
    _files: dict[str, LiveFile] = field(default_factory=dict)
    _others: list[tuple[Scenario, set[tuple[str, str]]]] | None = None
    _num_looks: int = 0
    num_slow_runs: int = 0

    def shows_violation(self) -> bool:
        """Tell whether one play shows the violation; of chance, it takes two that differ."""
        shown = self._identities(self.found.scenario, None) or set()
        return self.found.violation.property in dict(shown)

    def mends(self, edit: Edit) -> bool:
        """Tell whether the scenario holds every property with a change."""
        return self._identities(self.found.scenario, edit) == set()

    def harmless_in(self, edit: Edit) -> int | None:
        """Return the number of other scenarios that a change leaves right; None if one is not.

        A violation of another property may stay: the subject may have another defect. But the
        property that is mended has to hold, and those that its violation may violate: a change
        after which nothing is reduced has no wrong collective either.
        """
        mended = self.found.violation.property
        depending = {mended, *consequences_of(mended)}
        if self._others is None:
            capabilities = self.subject.capabilities
            drawing = Drawing(capabilities, _MAX_RANKS, _NUM_OTHERS, _SEED)
            self._others = [
                (each, self._identities(each, None) or set())
                for each in drawing.drawn()
            ]
        for scenario, before in self._others:
            after = self._identities(scenario, edit)
            if after is None or not after <= before or depending & dict(after).keys():
                return None
        return len(self._others)

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
        scenario, told = self.found.scenario, self.found.violation.unordered
        decisions = Decisions(Following(self.found.schedule))
        run = self.backend.run_scheduled(scenario, self.subject, decisions)
        known = reference(scenario, self.subject.capabilities)
        found = Judgement(scenario, run, known).disorders
        return sorted(
            found,
            key=lambda each: not any(is_same_work(e, told) for e in each.found if told),
        )

    def first_line_of(self, phase: str) -> str | None:
        """Name the first line of the subject's method of a name."""
        method: Any = getattr(self.subject.factory, phase, None)
        while hasattr(method, "__wrapped__"):
            method = method.__wrapped__
        if not isinstance(method, FunctionType):
            return None
        code = method.__code__
        if not is_subject_line(code.co_filename):
            return None
        return f"{shown_path(code.co_filename)}:{code.co_firstlineno + 1} in {phase}"

    def functions(self) -> Iterator[tuple[Source, ast.FunctionDef]]:
        """Yield the functions behind the violation, then all methods of the subject."""
        code = self.found.violation.evidence.get("code", {})
        lines = [line for each in code.values() for line in each]
        seen = set[tuple[str, int]]()
        for line in (*lines, *self._methods()):
            path, _, rest = line.partition(":")
            number, source = (
                rest.partition(" in ")[0],
                source_of(str(Path(path).absolute())),
            )
            function = source.function_at(int(number)) if source else None
            if source and function and (source.path, function.lineno) not in seen:
                seen.add((source.path, function.lineno))
                yield source, function

    def _methods(self) -> Iterator[str]:
        """Name the methods of the subject's class and its bases, the nearest class first."""
        for owner in getattr(self.subject.factory, "__mro__", ()):
            for method in vars(owner).values():
                code = (
                    getattr(inspect.unwrap(method), "__code__", None)
                    if callable(method)
                    else None
                )
                if code is not None and is_subject_line(code.co_filename):
                    yield f"{shown_path(code.co_filename)}:{code.co_firstlineno + 1} in f"

    def fix(self, edit: Edit, num_others: int) -> Fix:
        """Describe a change."""
        source = self._file(edit.path).source
        start = edit.first - 1
        removed = source.lines[start : start + edit.num_lines]
        near = max(start - 1, 0) if not edit.num_lines else start
        function = source.function_at(near + 1)
        place = f"{shown_path(edit.path)}:{near + 1}"
        place += f" in {function.name}" if function else ""
        stays = () if edit.num_lines else source.lines[near : near + 1]
        lines = [f"  {line}" for line in stays]
        lines += [f"- {line}" for line in removed]
        lines += [f"+ {' ' * edit.indent}{line}" for line in edit.lines]
        return Fix(place, _dedented(lines), num_others)

    def _identities(
        self, scenario: Scenario, edit: Edit | None
    ) -> set[tuple[str, str]] | None:
        """Play a scenario; return its violations, None if the change cannot be made."""
        is_own = scenario == self.found.scenario
        schedule = self.found.schedule if is_own else Schedule()
        decisions = Decisions(Following(schedule))
        try:
            with self._file(edit.path).in_force(edit) if edit else nullcontext():
                run = self.backend.run_scheduled(scenario, self.subject, decisions)
        except NotEditableError:
            return None
        if run.fault is not None:
            self.num_slow_runs += run.fault.kind in _SLOW
        if edit is not None and is_own and _lacks_order(run):
            return (
                _SOME  # the search for remedies takes long, and a number tells enough
            )
        found = check(scenario, run, self.subject.capabilities)
        return {violation.identity for violation in found}

    def _file(self, path: str) -> LiveFile:
        if path not in self._files:
            self._files[path] = LiveFile(path)
        return self._files[path]


def _lacks_order(run: Run) -> bool:
    """Tell whether streams leave some work of a run without an order."""
    orderings = judge_orderings([rank_run.trace for rank_run in run.ranks])
    return bool(orderings.races or orderings.early_frees)


def _dedented(lines: list[str]) -> tuple[str, ...]:
    """Take away the indentation that all lines have after their first two characters."""
    filled = [line[2:] for line in lines if line[2:].strip()]
    common = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    return tuple(line[:2] + line[2 + common :] for line in lines)
