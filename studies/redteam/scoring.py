"""The score of a program: caught, missed, accused or silent, and by which scenario."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from studies.redteam.program import program_named
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.entry import Entry
from syncverify.errors import SyncverifyError
from syncverify.program.modules.layers import provide_layers
from syncverify.program.warnings_once import show_warnings_once
from syncverify.search.first_violation import first_met
from syncverify.settings import Settings

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
    provide_layers(program.defect().capabilities)
    show_warnings_once()
    torch.set_num_threads(1)
    try:
        return _searched(program, SimBackend(), examples)
    except SyncverifyError as error:
        first = str(error).partition("\n")[0]
        return Score(name, "not judged", type(error).__name__, first)


def _searched(program: Entry, backend: SimBackend, examples: int) -> Score:
    settings = Settings(ranks=program.max_ranks, examples=examples, seed=SEED)
    found, played = first_met(program.defect(), backend, settings)
    if found is None:
        silent: Verdict = "missed" if program.is_wrong else "silent"
        return Score(program.name, silent, examples=played)
    violation = found.violation
    return Score(
        name=program.name,
        verdict="caught" if program.is_wrong else "accused",
        identity="{} ({})".format(*violation.identity),
        message=violation.summary.partition("\n")[0],
        examples=played,
        token=found.token,
    )
