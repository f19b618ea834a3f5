"""The judgement of a recorded script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from syncverify.faces.scripts.recording import Recording
from syncverify.faces.simulation.simulation import FoundInProgram, Simulation
from syncverify.judge.properties.any_program import judge_traced
from syncverify.judge.remarks import Remark, remarks_on
from syncverify.judge.traced import TracedRun, launches_of
from syncverify.scenario.program_token import ProgramPlay
from syncverify.scenario.schedule import DEFAULT_SCHEDULE, ScheduleCoverage

# Another order would be another run of the script.
_AS_RECORDED: Final = ScheduleCoverage("the recorded order of the ranks alone")


def judge(recording: Recording) -> Simulation:
    """Judge a recording: races, early frees, mismatches, deadlocks, errors."""
    run = recording.run
    if recording.refused:
        return _unjudged(recording, recording.refused)
    traced = TracedRun(run, is_for_nccl=recording.device == "cuda")
    found = tuple(
        FoundInProgram(each, DEFAULT_SCHEDULE, run) for each in judge_traced(traced)
    )
    if not found and not any([*launches_of(each.trace)] for each in run.ranks):
        return _unjudged(recording, "no rank has issued a collective")
    return Simulation(
        recording.script.target,
        recording.num_ranks,
        recording.device,
        0,
        violations=found,
        run=run,
        num_runs=1,
        coverage=_AS_RECORDED,
        remarks=tuple(_remarks(recording, found)),
        recorded=_play_of(recording),
    )


def _play_of(recording: Recording) -> ProgramPlay:
    """Return how the script was played, without what was found."""
    options = ["--nproc", str(recording.num_ranks), "--device", recording.device]
    options += ["-m"] if recording.script.is_module else []
    arguments = recording.script.arguments
    return ProgramPlay("", "", "record", tuple(options), arguments)


def _unjudged(recording: Recording, why: str) -> Simulation:
    return Simulation(
        recording.script.target,
        recording.num_ranks,
        recording.device,
        0,
        refused=why,
    )


def _remarks(
    recording: Recording, found: tuple[FoundInProgram, ...]
) -> Iterator[Remark]:
    if recording.was_interrupted:  # the wait may come later
        return iter(())
    guilty_lines = {line for each in found for line in each.violation.evidence.lines}
    return remarks_on(recording.run, guilty_lines)
