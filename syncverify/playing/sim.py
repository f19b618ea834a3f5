"""The `sim` backend: ranks are threads of this process, which take turns; no GPU."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import torch

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.playing.announcement import announce
from syncverify.playing.gpu_needs import refusing_what_needs_gpus
from syncverify.playing.play import Returned, play
from syncverify.playing.program.graphs import cpp
from syncverify.playing.program.leftovers import drop_what_is_undone
from syncverify.playing.program.rank_program import play_part
from syncverify.processes.silence import HANG_TIMEOUT_SECONDS
from syncverify.scenario.feature_row import base_word, variant
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, Schedule
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.network.rendezvous import Failures
from syncverify.sim.per_rank.python_functions import own_hashes, short_pauses
from syncverify.sim.process_wide.generators import unlikely_start
from syncverify.sim.process_wide.rank_variables import ranks_per_machine
from syncverify.sim.process_wide.settings import restored_settings
from syncverify.sim.recording.rank_recorder import RankRecorder
from syncverify.sim.turns.decisions import Decisions, SchedulePolicy
from syncverify.sim.turns.scheduler import MAX_STEPS_PER_RANK
from syncverify.subjects.subject import Subject, SubjectFactory
from syncverify.trace.run import FaultKind, RankRun, Run


class SimBackend:
    """Plays scenarios on simulated ranks.

    A rank that keeps its turn without progress ends the run after a time; see Note [A rank that does
    not come back]. With `watches_engine` runs have a log of their backward passes, which takes time.
    """

    name = "sim"

    def __init__(
        self,
        *,
        hang_timeout_seconds: float = HANG_TIMEOUT_SECONDS,
        watches_engine: bool = False,
    ) -> None:
        self._watches_engine = watches_engine
        self._hang_timeout_seconds = hang_timeout_seconds
        # Subjects that used no second stream so far, under any contract. With one
        # stream no access can race, so accesses are not recorded; a run that has more
        # streams is played again.
        self._with_one_stream: set[SubjectFactory] = set()

    def run(
        self,
        scenario: Scenario,
        subject: Subject,
        schedule: Schedule | Decisions = DEFAULT_SCHEDULE,
        recorders: Sequence[RankRecorder] | None = None,
    ) -> Run:
        """Play a scenario on all of its ranks.

        It follows a schedule, or decisions in the place of timing, whose `taken` holds each of them
        afterwards. Recorders, by rank, do more than write a trace.

        Raises:
            EnvironmentNotSupportedError: The subject asks for what is not simulated.
            SubjectError: The instance that the factory made lacks a part of the subject API.
            InternalError: The harness failed on some rank.
        """
        decisions = schedule
        if isinstance(decisions, Schedule):
            decisions = Decisions(SchedulePolicy(decisions))
        limits = self._hang_timeout_seconds, self._watches_engine
        program = _ScenarioProgram(scenario, subject, *limits)
        if recorders is not None:
            return _run(program, decisions, recorders)
        program_has_one_stream = scenario.launch == "current_stream"
        has_one = program_has_one_stream and subject.factory in self._with_one_stream
        recorders = program.recorders(records_accesses=not has_one)
        run = _run(program, decisions, recorders)
        if any(recorder.lacks_accesses for recorder in recorders):
            self._with_one_stream.discard(subject.factory)
            again = Decisions(SchedulePolicy(decisions.schedule))
            recorders = program.recorders()
            run = _run(program, again, recorders)
        had_one = all(recorder.streams.is_alone for recorder in recorders)
        if program_has_one_stream and had_one:
            self._with_one_stream.add(subject.factory)
        return run

    def close(self) -> None:
        """Do nothing: simulated ranks end with their run."""


@dataclass(frozen=True, slots=True)
class _ScenarioProgram:
    """The training program of a scenario, with its subject."""

    scenario: Scenario
    subject: Subject
    hang_timeout_seconds: float
    watches_engine: bool
    max_steps_per_rank: int = MAX_STEPS_PER_RANK

    @property
    def is_for_nccl(self) -> bool:
        return self.subject.capabilities.is_for_nccl

    def recorders(self, *, records_accesses: bool = True) -> list[RankRecorder]:
        options = {"records_accesses": records_accesses}
        options["watches_engine"] = self.watches_engine
        num_ranks = self.scenario.mesh.num_ranks
        return [RankRecorder(**options) for _ in range(num_ranks)]

    def prepare(self, machine: SimulatedMachine) -> None:
        machine.world.failures = failures_of(self.scenario.events)
        per_machine = ranks_per_machine(len(machine.recorders))
        for rank, recorder in enumerate(machine.recorders):
            if self.is_for_nccl:
                recorder.streams.backends.default = "nccl"
            if self._sees_gpus:
                recorder.streams.tell(torch.device("cuda", rank % per_machine))

    @contextmanager
    def around(self, _: SimulatedMachine, results: Sequence[RankRun]) -> Iterator[None]:
        hashes = own_hashes(self.subject.factory)
        with unlikely_start(), short_pauses(), hashes, restored_settings() as before:
            yield
            drop_what_is_undone(results, before)

    def on_rank(self, rank: int, recorder: RankRecorder, result: RankRun) -> Returned:
        with refusing_what_needs_gpus() if self._sees_gpus else nullcontext():
            play_part(self.scenario, self.subject, rank, result, recorder)
        return Returned()

    @property
    def _sees_gpus(self) -> bool:
        return self.subject.capabilities.device == "cuda"


# Words about a rank that may have waited for a callback in vain, by the kind of its fault.
_WAITS: Final[Mapping[FaultKind, str]] = {
    "never_returns": "makes no progress",
    "raised": "raises",
}


def _run(
    program: _ScenarioProgram, decisions: Decisions, recorders: Sequence[RankRecorder]
) -> Run:
    """Play once; refuse to judge a rank that may have waited for a callback of a future."""
    announce(program.scenario, decisions.planned)
    cpp.prepare(spec.use for spec in program.scenario.parameters)
    played = play(program, decisions, recorders)
    fault, machine = played.run.fault, played.machine
    if fault is None or fault.kind not in _WAITS or machine.world.failures is not None:
        return played.run
    for rank in fault.ranks:
        if machine.recorders[rank].streams.callbacks:
            raise EnvironmentNotSupportedError(
                f"rank {rank} {_WAITS[fault.kind]} while a callback of a future has not run; the "
                "sim backend runs callbacks as the rank waits for a collective, and real "
                "ones run beside the rank; play the subject on gloo"
            )
    return played.run


def failures_of(events: Sequence[str]) -> Failures | None:
    """Return the failures of the first step whose event has some; None if no step has any."""
    for step, event in enumerate(events):
        if base_word(event) == "failing_collectives":
            return Failures(step, is_first_alone=variant(event) == "first")
    return None
