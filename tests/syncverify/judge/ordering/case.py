"""A micro-trace and the verdict that it should get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Label = Literal["legal", "race", "early free"]


@dataclass(frozen=True)
class Case:
    name: str
    label: Label
    programs: tuple[str, ...]
    semantics: Literal["stream", "host"] = "stream"
