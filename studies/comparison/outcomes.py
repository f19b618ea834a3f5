"""The verdicts of all methods on one case, kept in a file while other cases are played."""

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from studies.comparison.cases import Case
from studies.comparison.methods.all_methods import METHODS
from studies.comparison.methods.method import Method
from studies.comparison.rigs import Rigs
from studies.comparison.verdicts import Verdict, how_they_end
from syncverify.bugbank.entry import Entry
from syncverify.judge.properties.judgement import Judgement


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdicts of all methods on one case.

    Attributes:
        id: Id of the case.
        section: Section of the bank.
        is_silent: Whether real hardware shows no error and no hang.
        defect: Verdicts on the defect, by id of the method.
        twin: Verdicts on the twin, by id of the method.
    """

    id: str
    section: str
    is_silent: bool
    defect: Mapping[str, Verdict]
    twin: Mapping[str, Verdict]


# A process opens its rigs once; processes that the rigs start end with that process.
_rigs = functools.cache(Rigs)


@dataclass(frozen=True, slots=True)
class Task:
    """A case to play.

    Attributes:
        case: The defect and its twin.
        known: Verdicts of an earlier command; None for none.
    """

    case: Case
    known: Outcome | None


def is_whole(outcome: Outcome | None) -> bool:
    """Tell whether an outcome has the verdicts of all methods."""
    return outcome is not None and {m.id for m in METHODS} <= outcome.defect.keys()


def compared(task: Task) -> Outcome:
    """Play a case on the rigs of this process, and ask the methods without a known verdict.

    Args:
        task: The case, and its known verdicts.

    Returns:
        The verdicts, the known ones among them.
    """
    torch.set_num_threads(1)
    rigs, case, known = _rigs(), task.case, task.known
    asked = [m for m in METHODS if known is None or m.id not in known.defect]
    names = dict.fromkeys(method.rig for method in asked)
    defects, twins = (
        {name: rigs.play(name, case, subject) for name in names}
        for subject in (case.defect, case.twin)
    )
    verdict_pairs = {m.id: verdicts(m, defects[m.rig], twins[m.rig]) for m in asked}
    if known is not None:
        verdict_pairs |= {
            name: (known.defect[name], known.twin[name]) for name in known.defect
        }
    return Outcome(
        case.id,
        case.section,
        case.is_silent,
        {name: of_defect for name, (of_defect, _) in verdict_pairs.items()},
        {name: of_twin for name, (_, of_twin) in verdict_pairs.items()},
    )


def not_played(entry: Entry) -> Outcome:
    """Count a defect as missed by all methods: the search found no scenario to play."""
    missed = Verdict(alarmed=False, words="the search found no scenario that shows it")
    verdicts_of_none = {method.id: missed for method in METHODS}
    return Outcome(
        entry.name, entry.family, entry.silent, verdicts_of_none, verdicts_of_none
    )


def verdicts(
    method: Method, defect: Judgement, twin: Judgement
) -> tuple[Verdict, Verdict]:
    """Ask one method about a defect and its twin.

    Args:
        method: The method.
        defect: A run of the defect.
        twin: A run of its twin, in the same place.

    Returns:
        The verdicts on the defect and on the twin.
    """
    if method.judges_ends:
        return method.judge(defect), method.judge(twin)
    ends = how_they_end(defect, twin)
    of_defect, of_twin = (
        end if end.alarmed else _with_reason(method.judge(run), end)
        for end, run in zip(ends, (defect, twin), strict=True)
    )
    return of_defect, of_twin


def _with_reason(verdict: Verdict, end: Verdict) -> Verdict:
    """Give a verdict without words the reason that the end of the run has."""
    return verdict if verdict.words else end


def stored(path: Path | None) -> dict[str, Outcome]:
    """Read the outcomes of an earlier command.

    Args:
        path: File that `store` has written. None and a missing file hold no outcomes.

    Returns:
        The outcomes, by id of the case.
    """
    if path is None or not path.exists():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))
    for entry in entries:
        for side in ("defect", "twin"):
            entry[side] = {
                name: Verdict(**fields) for name, fields in entry[side].items()
            }
    return {entry["id"]: Outcome(**entry) for entry in entries}


def store(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Write the outcomes that are known so far."""
    entries = [asdict(outcome) for outcome in outcomes]
    path.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
