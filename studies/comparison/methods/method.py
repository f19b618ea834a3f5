"""The description of a method: its judge, and the source of its runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from studies.comparison.verdicts import Verdict
from syncverify.judge.properties.judgement import Judgement

# Source of a run; see `comparison.rigs`.
RigName = Literal[
    "gloo", "gloo in detail", "gloo with hashes", "threads", "local tensors",
    "sim, trained", "sim",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Method:
    """One way to look for defects.

    Attributes:
        id: Key in JSON and in tests.
        title: Name in the table.
        rig: Source of its runs.
        judge: Returns the verdict on a run, complete or cut off by a fault.
        judges_ends: Whether `judge` decides on runs that raise, die or hang. For other
            methods such an end is an alarm by itself.
    """

    id: str
    title: str
    rig: RigName
    judge: Callable[[Judgement], Verdict]
    judges_ends: bool = False
