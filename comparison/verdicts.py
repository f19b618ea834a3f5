"""What a method says of one run."""

from __future__ import annotations

from dataclasses import dataclass

from syncverify.properties.judgement import Judgement

_MAX_CHARS = 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a method says of one run.

    Attributes:
        alarmed: Whether it says that something is wrong.
        words: What, or why it can say nothing, in a few words.
    """

    alarmed: bool
    words: str = ""


SILENT = Verdict(alarmed=False)


def alarm(words: str) -> Verdict:
    """Say that something is wrong, in one line."""
    return Verdict(alarmed=True, words=one_line(words))


def one_line(words: str) -> str:
    """Shorten words to what fits into a table."""
    line = " ".join(words.split())
    return line if len(line) <= _MAX_CHARS else line[: _MAX_CHARS - 3] + "..."


def how_they_end(defect: Judgement, twin: Judgement) -> tuple[Verdict, Verdict]:
    """Say whether runs that nobody looks at closer are noticed: they raise, die or hang.

    An error in which both end alike says nothing of either: they refuse the scenario, or
    cannot be played there. Nor is it an alarm if the twin raises where it may.

    Args:
        defect: A run of the defect.
        twin: A run of its twin, in the same place.

    Returns:
        What to say of the one and of the other.
    """
    raised = _error(defect)
    if raised and raised == _error(twin):
        both = Verdict(alarmed=False, words=one_line(f"defect and twin raise {raised}"))
        return both, both
    may_raise = twin.refused_step is not None
    return _noticed(defect), SILENT if may_raise else _noticed(twin)


def _error(judgement: Judgement) -> str:
    """Return what was raised and where, whichever rank it was; nothing if it was not."""
    fault = judgement.run.fault
    is_raised = fault is not None and fault.kind == "raised"
    return fault.summary.partition(" raised ")[2] if fault and is_raised else ""


def _noticed(judgement: Judgement) -> Verdict:
    run = judgement.run
    if run.fault is None:
        return SILENT
    if run.fault.kind == "collective_mismatch" and run.backend == "sim":
        return Verdict(alarmed=False, words="ranks disagree, which only `sim` sees")
    return alarm(f"{run.fault.kind}: {run.fault.summary}")
