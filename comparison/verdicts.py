"""What a method says of one run."""

from __future__ import annotations

from dataclasses import dataclass

from syncverify.properties.judgement import Judgement

_MAX_WORDS_CHARS = 100


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
    line = " ".join(words.split())
    cut = line[: _MAX_WORDS_CHARS - 3] + "..."
    return Verdict(alarmed=True, words=line if len(line) <= _MAX_WORDS_CHARS else cut)


def ended_badly(judgement: Judgement) -> Verdict:
    """Say whether a run that nobody looks at closer is noticed: it raises, dies or hangs.

    An error in the place of a step that may be refused is how it should be.

    Args:
        judgement: The run.

    Returns:
        An alarm if so.
    """
    fault = judgement.run.fault
    if fault is None or judgement.refused_step is not None:
        return SILENT
    return alarm(f"{fault.kind}: {fault.summary}")
