"""Play the scenario of a violation, and others, with changes of the subject's source."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Final

from syncverify.errors import LayerError
from syncverify.explain.case import Case
from syncverify.explain.repair.comparison import Measured, regression, worse_than_right
from syncverify.explain.repair.cost import Cost, MeasuringRecorder, cost_of
from syncverify.explain.repair.other_scenarios import measured_scenarios
from syncverify.explain.repair.scope import Scope, listening
from syncverify.explain.repair.source_edit import (
    Edit,
    Function,
    LiveFile,
    NotEditableError,
    Source,
    line_of,
    source_of,
)
from syncverify.judge.ordering.races import is_same_work, judge_orderings
from syncverify.judge.ordering.remedies import Disorder
from syncverify.judge.traced import TracedRun
from syncverify.judge.violation import Identity
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import Schedule
from syncverify.search.found_violation import Fix
from syncverify.trace.run import ENDED_FROM_OUTSIDE, Run
from syncverify.trace.source_files import is_subject_line
from syncverify.trace.source_lines import SourceLine, lines_among

_MAX_LOOKS: Final = 24
# Further scenarios to draw for a change that could be a fix.
_NUM_CONFIRMING: Final = 30
_CONFIRMING_SEED: Final = 2
# Stands for violations that were not listed.
_SOME: Final[set[Identity]] = {("", "")}


@dataclass
class Game(Case):
    """The plays of one violation's scenario with changes."""

    num_slow_runs: int = 0  # that were ended from outside
    _file: Callable[[str], LiveFile] = field(default_factory=lambda: cache(LiveFile))
    _plays: dict[tuple[Scenario, Edit | None], Measured] = field(default_factory=dict)
    _num_looks: int = 0

    def shows_violation(self) -> bool:
        """Tell whether one play shows the violation; one of chance takes two plays that differ."""
        shown = self._identities(self.found.scenario, None) or set()
        return self.found.violation.property in dict(shown)

    def mends(self, edit: Edit) -> bool:
        """Tell whether the scenario holds every property with a change."""
        return self._identities(self.found.scenario, edit) == set()

    def is_harmless(self, edit: Edit) -> bool:
        """Tell whether a change leaves other scenarios right; see `is_mended`."""
        return all(
            self.is_mended(self._other(each.scenario, edit).identities, each.identities)
            for each in self._others
        )

    def is_confirmed(self, edit: Edit) -> bool:
        """Tell whether a change leaves many more scenarios right; see `is_mended`."""
        for scenario in self._confirming:
            after = self._identities(scenario, edit)
            # The unchanged subject is played only where something is wrong.
            if after == set():
                continue
            if not self.is_mended(after, self._identities(scenario, None)):
                return False
        return True

    def costs_of(self, edit: Edit) -> list[Cost] | None:
        """Return the costs of the other scenarios with a change; None if something gets worse."""
        # The drawn scenarios come first, and most regressions need the many parameters of others.
        before = [*reversed(self._others)]
        costs = (self._other(each.scenario, edit).cost for each in before)
        if regression(before, costs) is not None:
            return None
        return [self._other(each.scenario, edit).cost for each in self._others]

    def is_unchanged(self, costs: Sequence[Cost]) -> bool:
        """Tell whether a change leaves the costs of all scenarios that can be compared."""
        pairs = zip(self._others, costs, strict=True)
        return all(each.cost == cost for each, cost in pairs if each.reaches_end)

    def costs_no_more_where_right(self, edit: Edit) -> bool:
        """Tell whether the other scenarios that were right cost no more with a change."""
        # Enough of a change after which each step begins as step 0, which stays as before: the
        # cost of a wrong later step is no measure.
        return not any(
            worse_than_right(each, self._other(each.scenario, edit).cost)
            for each in self._others
            if each.is_right
        )

    @cached_property
    def _others(self) -> list[Measured]:
        """The other scenarios, played before any change."""
        contract, own = self.subject.capabilities, self.found.scenario
        # The drawn ones are small: a change that breaks something breaks one of them soon.
        played = [*self.drawn(), *measured_scenarios(own, contract)]
        return [
            self._other(each, None) for each in dict.fromkeys(played) if each != own
        ]

    @cached_property
    def _confirming(self) -> list[Scenario]:
        """Scenarios for the few changes that could be a fix."""
        known = {self.found.scenario, *(each.scenario for each in self._others)}
        drawn = self.drawn(_NUM_CONFIRMING, _CONFIRMING_SEED)
        return [each for each in dict.fromkeys(drawn) if each not in known]

    def _other(self, scenario: Scenario, edit: Edit | None) -> Measured:
        """Play another scenario, once for each change."""
        if (scenario, edit) not in self._plays:
            ranks = range(scenario.mesh.num_ranks)
            recorders = tuple(MeasuringRecorder() for _ in ranks)
            run = self._run(scenario, edit, recorders)
            found, cost = None, Cost()
            if run is not None:
                found = self.identities_of(scenario, run)
                peak_bytes = sum(each.peak_bytes for each in recorders)
                cost = cost_of([each.everything for each in recorders], peak_bytes)
            reaches_end = run is not None and run.fault is None
            self._plays[scenario, edit] = Measured(scenario, found, reaches_end, cost)
        return self._plays[scenario, edit]

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
        race = self.found.violation.evidence.unordered
        is_for_nccl = self.subject.capabilities.is_for_nccl
        found = TracedRun(self.play(), is_for_nccl=is_for_nccl).disorders
        return sorted(
            found,
            key=lambda each: not any(is_same_work(e, race) for e in each.found if race),
        )

    def method(self, name: str) -> SourceLine | None:
        """Return the first line of the subject's method of a name."""
        return line_of(getattr(self.subject.factory, name, None))

    def functions(self) -> Iterator[tuple[Source, Function]]:
        """Yield the functions behind the violation, then other methods of the subject and its file.

        Constructors are left out: a change of what they are given only avoids a mistake.
        """
        events = self.found.violation.evidence.events
        lines = lines_among(each for event in events for each in event.origins)
        constructors = (vars(each).get("__init__") for each in self._classes)
        given = filter(None, map(line_of, constructors))
        seen = {(line.file, line.number) for line in given}
        owned = (each for owner in self._classes for each in vars(owner).values())
        methods = filter(None, map(line_of, owned))
        for line in (*lines, *methods, *self._beside()):
            source = source_of(line.file)
            function = source.function_at(line.number) if source else None
            if source and function and (source.path, function.lineno) not in seen:
                seen.add((source.path, function.lineno))
                yield source, function

    @property
    def _classes(self) -> tuple[type, ...]:
        """The subject's class and its bases, the nearest first."""
        return getattr(self.subject.factory, "__mro__", ())

    def _beside(self) -> Iterator[SourceLine]:
        """Yield the methods of the other classes in the file of the subject's class."""
        factory: Any = self.subject.factory
        path = inspect.getsourcefile(factory) if inspect.isclass(factory) else None
        source = source_of(path) if path and is_subject_line(path) else None
        classes = source.classes if source else ()
        for node in (node for owner in classes for node in owner.body):
            if source and isinstance(node, ast.FunctionDef):
                yield source.line(node.lineno)

    def fix(self, edit: Edit) -> Fix:
        """Describe a change that is confirmed."""
        source = self._file(edit.path).source
        start, removed = edit.first - 1, self.removed(edit)
        near = max(start - 1, 0) if not edit.num_lines else start
        stays = () if edit.num_lines else source.lines[near : near + 1]
        lines = [f"  {line}" for line in stays]
        lines += [f"- {line}" for line in removed]
        lines += [f"+ {' ' * edit.indent}{line}" for line in edit.lines]
        texts = textwrap.dedent("\n".join(line[2:] for line in lines)).split("\n")
        shown = (line[:2] + text for line, text in zip(lines, texts, strict=True))
        # The cost is known of these, and not of those that confirm.
        most = max(each.scenario.mesh.num_ranks for each in self._others)
        place = source.line(near + 1)
        return Fix(place, tuple(shown), len(self._others), most, change=edit)

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
        if edit is not None and scenario == self.found.scenario:
            orderings = judge_orderings([rank_run.trace for rank_run in run.ranks])
            if orderings.races or orderings.early_frees:
                return _SOME
        return self.identities_of(scenario, run)

    def _run(
        self,
        scenario: Scenario,
        edit: Edit | None,
        recorders: Sequence[MeasuringRecorder] | None = None,
    ) -> Run | None:
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
