"""Simulate a program on ranks that share nothing: the way in for any program.

Note [The harm of a race]
    A race says that a value may be wrong. To show one, the program is played again with the first
    use of the pair running late, as the streams allow, and what it returns is compared.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import torch

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.explain.witness.adversary import adversaries
from syncverify.faces.simulation.host_waits import refuse_unknown_stall
from syncverify.faces.simulation.program import Device, Program, SimulatedProgram
from syncverify.faces.simulation.simulation import FoundInProgram, Harm, Simulation
from syncverify.judge.ordering.races import Unordered, is_same_work, judge_orderings
from syncverify.judge.properties.registry import judge_traced
from syncverify.judge.remarks import remarks_on
from syncverify.judge.traced import TracedRun
from syncverify.playing.play import Played, play
from syncverify.scenario.schedule import (
    DEFAULT_SCHEDULE,
    FIRST,
    SAME,
    Schedule,
    ScheduleChoice,
    ScheduleCoverage,
)
from syncverify.scenario.settings import PROGRAM_HANG_TIMEOUT_SECONDS
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.turns.decisions import Decisions, SchedulePolicy
from syncverify.sim.turns.timings import OtherTimings, may_differ
from syncverify.subjects.subject_path import path_of
from syncverify.trace.source_files import naming_torch

# Between two plays; a user may interrupt the rest.
_SO_FAR: Final = ScheduleCoverage("interrupted before all timings were played")
# Each order costs a play. If this many orders are harmless, one of the rest rarely does harm.
_MAX_ORDERS: Final = 8
_NUM_SHOWN: Final = 8
# Tensors that each rank returned.
Values = Sequence[Sequence[torch.Tensor]]


def simulate(
    program: Program,
    ranks: int = 2,
    *,
    device: Device = "cuda",
    schedules: str = "default",
    schedule: Schedule = DEFAULT_SCHEDULE,
    seed: int = 0,
    names_torch: bool = False,
    hang_timeout_seconds: float = PROGRAM_HANG_TIMEOUT_SECONDS,
) -> Simulation:
    """Run a program on simulated ranks, in this process and without a GPU, and judge it.

    Each rank calls `program(rank)`, or `program()`, inside a default process group. Streams,
    events and collectives work as on GPUs with NCCL, and each access to memory is recorded.

    Args:
        program: A function that may use all of `torch.distributed`. It gets its rank, unless
            it can be called without an argument and names none `rank`.
        ranks: Number of ranks.
        device: Device that torch names to the program: `cuda` or `cpu`.
        schedules: Orders of the ranks to play: `default`, `all[:N]` or `pct[:N]`, as for
            `syncverify run --schedules`.
        schedule: Choices of the first run, as a report names them.
        seed: Seed of the random orders of `pct`.
        names_torch: Whether reports name torch's own lines, for those who work on torch.
        hang_timeout_seconds: Seconds that a rank may compute without a call of torch or of the
            machine; then it counts as hung.

    Returns:
        The results by rank, and all that is wrong. It raises no error of the program.

    Raises:
        UsageError: An argument is wrong.
    """
    setup = SimulatedProgram(program, ranks, device, hang_timeout_seconds, names_torch)
    name = path_of(program)
    *_, simulation = simulations(setup, name, schedules, schedule, seed)
    return simulation


def simulate_for_values(program: Program, ranks: int, device: Device) -> Simulation:
    """Run a program for its values alone: accesses are not recorded, so races are not found."""
    setup = SimulatedProgram(program, ranks, device, records_accesses=False)
    *_, simulation = simulations(setup, path_of(program))
    return simulation


def simulations(
    setup: SimulatedProgram,
    name: str,
    schedules: str = "default",
    schedule: Schedule = DEFAULT_SCHEDULE,
    seed: int = 0,
) -> Iterator[Simulation]:
    """Yield the outcome after each play, the last one complete; refuse arguments that are wrong."""
    setup.check()
    choice = ScheduleChoice.parse(schedules)
    unplayed = Simulation(name, setup.num_ranks, setup.device, seed)
    try:
        with naming_torch(is_on=setup.names_torch):
            yield from _Plays(setup, unplayed).of(choice, schedule)
    except EnvironmentNotSupportedError as error:
        yield replace(unplayed, refused=str(error))


@dataclass(slots=True)
class _Plays:
    """The plays of a program, one schedule after another."""

    setup: SimulatedProgram
    unplayed: Simulation  # the outcome before the first play
    # Violations by identity and lines, each with the schedule that showed it first.
    found: dict[object, FoundInProgram] = field(default_factory=dict)
    shown: Played | None = None  # the first with a violation, or else the first
    num_runs: int = 0

    def of(self, choice: ScheduleChoice, schedule: Schedule) -> Iterator[Simulation]:
        """Play all schedules of a choice, and yield the outcome so far after each play."""
        first = Decisions(SchedulePolicy(schedule))
        self._play(first)
        yield self._known()
        num_ranks, num_turns = self.setup.num_ranks, len(first.turn_log)
        coverage = _SO_FAR
        if not may_differ(first, num_ranks):
            coverage = ScheduleCoverage(SAME)
        elif choice.mode == "default":
            coverage = ScheduleCoverage(FIRST)
        else:
            timings = OtherTimings(choice, num_ranks, num_turns, self.unplayed.seed)
            for decisions in timings:
                self._play(decisions)
                yield self._known()
            coverage = timings.coverage or _SO_FAR
        found = tuple(map(self._with_harm, self.found.values()))
        yield replace(self._known(), violations=found, coverage=coverage)

    def _known(self) -> Simulation:
        assert self.shown is not None
        found = self.found.values()
        guilty = {line for each in found for line in each.violation.evidence.lines}
        return replace(
            self.unplayed,
            results=tuple(each.value for each in self.shown.returned),
            violations=tuple(found),
            run=self.shown.run,
            num_runs=self.num_runs,
            coverage=_SO_FAR,
            remarks=tuple(remarks_on(self.shown.run, guilty)),
        )

    def _with_harm(self, found: FoundInProgram) -> FoundInProgram:
        pair, policy = (
            found.violation.evidence.unordered,
            SchedulePolicy(found.schedule),
        )
        # None where none of the orders that were played changes a returned value.
        harm = None if pair is None else next(_harms(pair, self.setup, policy), None)
        return replace(found, harm=harm)

    def _play(self, decisions: Decisions) -> None:
        played = play(self.setup, decisions)
        taken = Schedule.of(decisions.taken)
        refuse_unknown_stall(played, self.setup, taken)
        self.num_runs += 1
        traced = TracedRun(played.run, is_for_nccl=self.setup.is_for_nccl)
        violations = judge_traced(traced)
        if self.shown is None or (violations and not self.found):
            self.shown = played
        for each in violations:
            key = each.identity, each.evidence.lines  # equal for one defect in two runs
            self.found.setdefault(key, FoundInProgram(each, taken, played.run))


def _harms(
    pair: Unordered, setup: SimulatedProgram, policy: SchedulePolicy
) -> Iterator[Harm]:
    """Yield the harm of each order in which a pair runs the other way round; see the note above."""
    ranks = range(setup.num_ranks)
    recorders = [RankRecorder(keeps_everything=True) for _ in ranks]
    queued = play(setup, Decisions(policy), recorders)
    # The machine is late: a collective without a wait has not run at all.
    prompt = play(setup, Decisions(policy), is_prompt=True)
    if prompt.run.fault is None:
        yield from _changes(_values(queued), _values(prompt))
    traces = [each.trace for each in queued.run.ranks]
    found = judge_orderings(traces)
    unordered: list[Unordered] = [*found.races, *found.early_frees]
    alike = (each for each in unordered if is_same_work(each, pair))
    for _, rank, adversary in islice(adversaries(alike, traces), _MAX_ORDERS):
        recorders = setup.recorders()
        recorders[rank] = adversary
        played = play(setup, Decisions(policy), recorders)
        # An order that cannot be played to the end has no values.
        if not adversary.gave_up and played.run.fault is None:
            values = _values(played)
            values[rank] = adversary.late_reads.get(0) or values[rank]
            yield from _changes(_values(queued), values)


def _values(played: Played) -> list[Sequence[torch.Tensor]]:
    return [each.tensors for each in played.returned]


def _changes(queued: Values, other: Values) -> Iterator[Harm]:
    """Yield the tensors that differ; NaN equals NaN."""
    for rank, (ours, theirs) in enumerate(zip(queued, other, strict=False)):
        for one, two in zip(ours, theirs, strict=False):
            is_other = (one != two) & ~(one.isnan() & two.isnan())
            if is_other.any():
                first = int(is_other.flatten().nonzero()[0])
                start = first if first >= _NUM_SHOWN else 0
                yield Harm(rank, _elements(one, start), _elements(two, start), start)


def _elements(value: torch.Tensor, start: int) -> list[float]:
    shown = value.flatten()[start : start + _NUM_SHOWN]
    parts = torch.view_as_real(shown) if shown.is_complex() else shown
    return [float(element) for element in parts.flatten()[:_NUM_SHOWN]]
