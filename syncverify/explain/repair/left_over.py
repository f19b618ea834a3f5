"""Values that a step leaves in a subject, and that make the next step wrong.

Note [Left over]
    A counter that is not set back shows as a wrong gradient, as an error or as a race, one step
    later. The scenario is played again, and what the subject holds where each step begins is
    compared with what it held where step 0 began. Much may differ and be right: a step number,
    a cache. So the scenario is played with the differences set back on all ranks, as each step
    begins. A difference is reported if setting back all others leaves the violation. If setting
    back mends nothing, nothing is reported. A step that is wrong by itself stays wrong, and so
    does step 0.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any, Final

from typing_extensions import override

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.explain.case import SLOW, Case
from syncverify.judge.violation import Identity
from syncverify.search.plain_state import NOT_SET, LeftOver, Spot, state_of
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.subjects.subject import same_signature
from syncverify.subjects.subject_api import Synchronizer
from syncverify.trace.records import Moment
from syncverify.trace.run import Run

_NUM_SHOWN: Final = 3
_MAX_SLOW: Final = 1  # a value that is set back may make a program hang
_MAX_PATTERNS: Final = 8  # of paths to set back
_OF_CHANCE: Final = "subject_is_deterministic"


def left_over(case: Case) -> tuple[LeftOver, ...]:
    """Return up to three values that make a later step wrong; see Note [Left over]."""
    violation, scenario = case.found.violation, case.found.scenario
    is_played = scenario.num_steps > 1 and scenario.synchronizers == "one"
    is_repeatable = violation.cause not in SLOW and violation.property != _OF_CHANCE
    if not (is_played and is_repeatable) or violation.evidence.step == 0:
        return ()
    plays = _Plays(case.found, case.subject, case.backend)
    differing = plays.differing(min(violation.ranks, default=0))
    patterns = [*dict.fromkeys(each.pattern for each in differing)][:_MAX_PATTERNS]
    chosen = plays.needed(patterns)
    firsts = {each.pattern: each for each in reversed(differing)}
    shown = dict.fromkeys([*(firsts[each] for each in chosen), *differing])
    return tuple(each for each in shown if each.pattern in chosen)[:_NUM_SHOWN]


@dataclass
class _Plays(Case):
    """Plays of one violation's scenario, as it is and with values set back."""

    _before: set[Identity] = field(default_factory=set)
    _num_slow: int = 0

    def differing(self, rank: int) -> list[LeftOver]:
        """Return what differs on a rank where the wrong step begins, counted values first."""
        run, watches = self._played(())
        self._before = self.identities_of(self.found.scenario, run)
        by_step = watches[rank].differing
        if not by_step or self.found.violation.identity not in self._before:
            return []
        step = self.found.violation.evidence.step
        return by_step.get(max(by_step) if step is None else step, [])

    def needed(self, patterns: list[str]) -> list[str]:
        """Return patterns of paths that mend the violation if they are set back, none in vain."""
        if not patterns:
            return []
        if not self._is_mended_by(patterns):
            alone = ([each] for each in patterns if len(patterns) > 1)
            return next(filter(self._is_mended_by, alone), [])
        chosen = patterns
        for each in reversed(patterns):
            fewer = [other for other in chosen if other != each]
            if fewer and self._is_mended_by(fewer):
                chosen = fewer
        return chosen

    def _is_mended_by(self, patterns: Collection[str]) -> bool:
        if self._num_slow > _MAX_SLOW:
            return False
        try:
            run, _ = self._played(patterns)
        except EnvironmentNotSupportedError:  # as no run with the right values is
            return False
        if run.fault is not None:
            self._num_slow += run.fault.kind in SLOW
        after = self.identities_of(self.found.scenario, run)
        return self.is_mended(after, self._before)

    def _played(self, patterns: Collection[str]) -> tuple[Run, list[_Watch]]:
        scenario, factory = self.found.scenario, self.subject.factory
        made: dict[int, Synchronizer] = {}

        @same_signature(factory)
        def make(*given: Any) -> Synchronizer:
            synchronizer = made[threading.get_ident()] = factory(*given)
            return synchronizer

        ranks = range(scenario.mesh.num_ranks)
        watches = [_Watch(made, patterns, scenario.num_steps) for _ in ranks]
        watched = replace(self.subject, factory=make)
        return Case(self.found, watched, self.backend).play(watches), watches


class _Watch(RankRecorder):
    """Looks at the synchronizer of its rank as each step begins, and sets it back."""

    def __init__(
        self, made: dict[int, Synchronizer], patterns: Collection[str], num_steps: int
    ) -> None:
        super().__init__()
        # By step: values that differ from those at the beginning of step 0.
        self.differing: dict[int, list[LeftOver]] = {}
        self._made = made  # by thread; nothing keeps a synchronizer after the last step
        self._patterns = patterns
        self._num_steps = num_steps
        self._first: dict[str, Spot] = {}

    @override
    def enter(self, moment: Moment) -> None:
        super().enter(moment)
        if moment.phase == "unbind" and moment.step == self._num_steps - 1:
            self._let_go()
        owner = self._made.get(threading.get_ident())
        if owner is None or moment.phase != "backward" or moment.micro_batch != 0:
            return
        names = {id(each): name for name, each in self.parameters.items()}
        spots = state_of(owner, names)
        if moment.step == 0:
            self._first = spots
        elif moment.step is not None:
            self._compare(spots, moment.step)

    @override
    def finish(self) -> None:
        super().finish()
        self._let_go()

    def _let_go(self) -> None:
        self._first = {}
        self._made.pop(threading.get_ident(), None)

    def _compare(self, spots: dict[str, Spot], step: int) -> None:
        new, counted = list[LeftOver](), set[LeftOver]()
        for path, spot in spots.items():
            before = self._first.get(path)
            if before is not None and spot.shown == before.shown:
                continue
            is_attribute = spot.parts[-1].kind == "attribute"
            if before is None and (not is_attribute or spot.is_empty):
                continue
            shown = NOT_SET if before is None else before.shown
            each = LeftOver(spot.parts, shown, spot.shown, step)
            new.append(each)
            if spot.is_counted:
                counted.add(each)
            if each.pattern in self._patterns:
                spot.set_to(before)
        self.differing[step] = sorted(new, key=lambda each: each not in counted)
