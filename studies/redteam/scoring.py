"""The score of a program: caught, missed, accused or silent, and by which scenario."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from studies.redteam.catalogue import program_named
from studies.redteam.program import Program
from syncverify.backends.sim import SimBackend
from syncverify.defaults import DEFAULT_SCHEDULES
from syncverify.errors import SyncverifyError
from syncverify.program.warnings_once import show_warnings_once
from syncverify.scenario.scenario import Scenario
from syncverify.search.drawing import Drawing, EndedError
from syncverify.search.judge import Judge, JudgedRun
from syncverify.search.result import distinct_identities
from syncverify.search.schedules import ScheduleChoice
from syncverify.search.search import judge_each_scenario

Verdict = Literal["caught", "missed", "accused", "silent", "not judged"]
SEED = 0


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one program.

    Attributes:
        name: Name of the program.
        verdict: `caught` or `missed` for a wrong program, `accused` or `silent` for a right
            one, `not judged` if the harness refused the run.
        identity: Property and cause of the first violation, or the reason of a refusal.
        message: First line of the violation.
        examples: Scenarios up to the verdict.
        token: Replays the violation.
    """

    name: str
    verdict: Verdict
    identity: str = ""
    message: str = ""
    examples: int = 0
    token: str = ""


def score_of(name: str, examples: int) -> Score:
    """Search for the first violation of a program, without shrinking."""
    program = program_named(name)
    show_warnings_once()
    torch.set_num_threads(1)
    try:
        return _searched(program, SimBackend(), examples)
    except SyncverifyError as error:
        first = str(error).partition("\n")[0]
        return Score(name, "not judged", type(error).__name__, first)


def _searched(program: Program, backend: SimBackend, examples: int) -> Score:
    subject = program.resolved()
    choice = ScheduleChoice.parse(DEFAULT_SCHEDULES)
    judge = Judge(subject, backend, choice, SEED)
    drawing = Drawing(subject.capabilities, program.max_ranks, examples, SEED)
    silent: Verdict = "missed" if program.is_wrong else "silent"
    found: list[Score] = []
    played = 0

    def take(_: Scenario, judged: JudgedRun) -> None:
        nonlocal played
        played += 1
        if judged.violations:
            entry = judged.violations[distinct_identities(judged.violations)[0]]
            violation = entry.violation
            verdict: Verdict = "caught" if program.is_wrong else "accused"
            identity = f"{violation.property} ({violation.cause})"
            message = violation.summary.partition("\n")[0]
            found.append(
                Score(program.name, verdict, identity, message, played, entry.token)
            )
            raise EndedError

    judge_each_scenario(drawing, judge, take)
    return found[0] if found else Score(program.name, silent, examples=played)
