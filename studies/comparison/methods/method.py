"""The description of a method: its judge, and the source of its runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from studies.comparison.verdicts import Verdict
from syncverify.judge.properties.judgement import Judgement

# Source of a run; see `studies.comparison.rigs`.
RigName = Literal[
    "gloo", "gloo in detail", "gloo with hashes", "threads", "local tensors",
    "sim, trained", "sim",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Method:
    """One way to look for defects.

    Attributes:
        id: Key in JSON and in tests.
        title: Name in the tables of `docs/comparison.md`.
        rig: Source of its runs.
        judge: Returns the verdict on a run.
        judges_ends: Whether `judge` gets every run. Other methods do not get a run whose end is
            an alarm by itself (`how_they_end`): it raised, died or hung. They do get a run that
            was cut off where its end is no alarm, for example since the twin ends alike.
    """

    id: str
    title: str
    rig: RigName
    judge: Callable[[Judgement], Verdict]
    judges_ends: bool = False
