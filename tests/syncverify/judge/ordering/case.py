"""Micro-traces with the verdicts that they should get, as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Label = Literal["legal", "race", "early free"]
Semantics = Literal["stream", "host"]


@dataclass(frozen=True)
class Case:
    """Traces, and the verdict that a person has reached.

    Attributes:
        name: The fact that the traces show.
        label: The right verdict.
        programs: One program a rank, in the words of `micro_traces.py`.
        semantics: Whether operators are queued on streams, or run on the host at once.
    """

    name: str
    label: Label
    programs: tuple[str, ...]
    semantics: Semantics = "stream"


def cases(text: str, semantics: Semantics = "stream") -> list[Case]:
    """Read cases: each is a line `label: name`, and the programs of its ranks below it.

    A program begins with the number of its rank where there are several.
    """
    blocks = re.split(r"\n(?=\S)", text.strip())
    return [_case(*block.partition("\n")[::2], semantics) for block in blocks]


def _case(head: str, body: str, semantics: Semantics) -> Case:
    label, _, name = head.partition(": ")
    body = re.sub(r"#.*", "", body)
    alone, *of_ranks = re.split(r"^    \d(?= |$)", body, flags=re.MULTILINE)
    programs = tuple(" ".join(each.split()) for each in of_ranks or [alone])
    return Case(name, label, programs, semantics)  # type: ignore[arg-type]  # a literal
