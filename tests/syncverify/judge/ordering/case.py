"""A micro-trace and the verdict that it should get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Label = Literal["legal", "race", "early free"]


@dataclass(frozen=True)
class Case:
    """Traces, and the verdict that a person has reached.

    Attributes:
        name: What the traces show.
        label: The right verdict.
        programs: One program a rank, in the words of `micro_traces.py`.
        semantics: Whether operators are queued on streams, or run on the host at once.
    """

    name: str
    label: Label
    programs: tuple[str, ...]
    semantics: Literal["stream", "host"] = "stream"
