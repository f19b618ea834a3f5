"""What a method is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from comparison.verdicts import Verdict
from syncverify.properties.judgement import Judgement

# Where a run comes from; see `comparison.rigs`.
RigName = Literal["gloo", "gloo in detail", "threads", "sim, trained", "sim"]


@dataclass(frozen=True, slots=True)
class Method:
    """One way to look for defects.

    Attributes:
        id: Key in JSON, and what tests call it.
        title: What the table calls it.
        rig: Where its runs come from.
        judge: Says whether a run is wrong, as far as it got.
        about: How it was run, and what it cannot see; a paragraph of the page.
        judges_ends: Whether it has a word of its own on runs that raise, die or hang;
            otherwise whoever starts them notices, whichever the method.
    """

    id: str
    title: str
    rig: RigName
    judge: Callable[[Judgement], Verdict]
    about: str
    judges_ends: bool = False
