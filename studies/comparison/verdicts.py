"""The verdict of a method on one run."""

from dataclasses import dataclass

from syncverify.judge.properties.judgement import Judgement

_MAX_CHARS = 100


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a method on one run.

    Attributes:
        alarmed: Whether the method reports an error.
        words: The error, or the reason why the method cannot judge the run, in a few words.
    """

    alarmed: bool
    words: str = ""


SILENT = Verdict(alarmed=False)


def alarm(words: str) -> Verdict:
    """Return a verdict that reports an error, in one line."""
    return Verdict(alarmed=True, words=one_line(words))


def one_line(words: str) -> str:
    """Shorten a message to one line that fits into a table."""
    line = " ".join(words.split())
    return line if len(line) <= _MAX_CHARS else line[: _MAX_CHARS - 3] + "..."


def how_they_end(defect: Judgement, twin: Judgement) -> tuple[Verdict, Verdict]:
    """Judge runs by their ends alone: a run that raises, dies or hangs is an alarm.

    An error in which both runs end alike is no alarm: the subjects refuse the scenario, or
    the place cannot play it. An error of the twin in a step that it may refuse is none.

    Args:
        defect: A run of the defect.
        twin: A run of its twin, in the same place.

    Returns:
        The verdicts on the defect and on the twin.
    """
    error = _error(defect)
    if error and error == _error(twin):
        both = Verdict(alarmed=False, words=one_line(f"defect and twin raise {error}"))
        return both, both
    may_raise = twin.refused_step is not None
    return _noticed(defect), SILENT if may_raise else _noticed(twin)


def _error(judgement: Judgement) -> str:
    """Return the exception of a run and its place, without the rank; "" for none."""
    fault = judgement.run.fault
    return "" if fault is None else fault.error


def _noticed(judgement: Judgement) -> Verdict:
    run = judgement.run
    if run.fault is None:
        return SILENT
    if run.fault.kind == "collective_mismatch" and run.backend == "sim":
        return Verdict(alarmed=False, words="ranks disagree, which only `sim` sees")
    return alarm(f"{run.fault.kind}: {run.fault.summary}")
