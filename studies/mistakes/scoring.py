"""The score of a mistake: is it found, is its cause right, is its fix one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from studies.mistakes.corpus import SUBJECTS, Mistake, base_source, mistake_named
from studies.mistakes.fixes import Played, applied, compared, played
from studies.mistakes.playing import Told, told_about
from syncverify.witness.fix import Fix

EXAMPLES: Final = 40


@dataclass(frozen=True, slots=True)
class OfferedFix:
    """A fix that a report offers, and what it does to the program.

    Attributes:
        lines: The change.
        verdict: `ok`, or what is wrong with it.
    """

    lines: tuple[str, ...]
    verdict: str


@dataclass(frozen=True, slots=True)
class Score:
    """What the harness says about one mistake.

    Attributes:
        name: Name of the mistake.
        told: Violations in the order of the report.
        fixes: Fixes of the report.
    """

    name: str
    told: tuple[Told, ...] = ()
    fixes: tuple[OfferedFix, ...] = ()

    @property
    def is_found(self) -> bool:
        """Tell whether there is a violation."""
        return bool(self.told)

    @property
    def is_right(self) -> bool:
        """Tell whether the first violation names the mistake."""
        mistake = mistake_named(self.name)
        if not self.told or self.told[0].cause not in mistake.causes:
            return False
        text = self.told[0].text
        return not mistake.says or any(words in text for words in mistake.says)

    @property
    def wrong_certain(self) -> tuple[str, ...]:
        """Return the causes that are called certain and are wrong."""
        mistake = mistake_named(self.name)
        known = {*mistake.causes, *mistake.true}
        certain = (each.cause for each in self.told if each.is_certain)
        return tuple(cause for cause in certain if cause not in known)


def right_programs() -> dict[str, Played]:
    """Play the bases in the scenarios in which fixes are compared."""
    sources = {base: base_source(base) for base in SUBJECTS}
    return {base: played(base, source) for base, source in sources.items()}


def scored(name: str, right: dict[str, Played], examples: int) -> Score:
    """Play a mistake, and its fixes."""
    mistake = mistake_named(name)
    found = told_about(mistake.base, mistake.text, examples)
    fixes = [
        OfferedFix(fix.lines, _verdict(mistake, fix, right[mistake.base]))
        for fix in dict.fromkeys(fix for _, fix in found)
        if fix is not None
    ]
    return Score(name, tuple(violation for violation, _ in found), tuple(fixes))


def _verdict(mistake: Mistake, fix: Fix, right: Played) -> str:
    try:
        source = applied(mistake.text, fix)
    except ValueError:
        return "no program"
    return compared(right, played(mistake.base, source))
