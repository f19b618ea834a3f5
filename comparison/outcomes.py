"""What all methods say of one case; kept in a file while the others are played."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from comparison.cases import Case
from comparison.methods.all_methods import METHODS
from comparison.methods.method import Method
from comparison.rigs import Rigs
from comparison.verdicts import Verdict, how_they_end
from syncverify.bugbank.entry import Entry
from syncverify.properties.judgement import Judgement


@dataclass(frozen=True, slots=True)
class Outcome:
    """What all methods say of one case.

    Attributes:
        id: Of the case.
        section: Part of the bank that it is in.
        is_silent: Whether real hardware shows no error and no hang.
        defect: What each method says of the defect, by its id.
        twin: Likewise of the twin.
    """

    id: str
    section: str
    is_silent: bool
    defect: Mapping[str, Verdict]
    twin: Mapping[str, Verdict]


def compared(case: Case, rigs: Rigs) -> Outcome:
    """Play a case everywhere, and ask all methods.

    Args:
        case: The defect and its twin.
        rigs: Where to play.

    Returns:
        What they say.
    """
    names = dict.fromkeys(method.rig for method in METHODS)
    defects, twins = (
        {name: rigs.play(name, case, subject) for name in names}
        for subject in (case.defect, case.twin)
    )
    said = {m.id: verdicts(m, defects[m.rig], twins[m.rig]) for m in METHODS}
    return Outcome(
        case.id,
        case.section,
        case.is_silent,
        {name: of_defect for name, (of_defect, _) in said.items()},
        {name: of_twin for name, (_, of_twin) in said.items()},
    )


def not_played(entry: Entry) -> Outcome:
    """Count a defect as missed by all methods: the search found no scenario to play."""
    missed = Verdict(alarmed=False, words="the search found no scenario that shows it")
    said = {method.id: missed for method in METHODS}
    return Outcome(entry.id, entry.section, entry.silent, said, said)


def verdicts(
    method: Method, defect: Judgement, twin: Judgement
) -> tuple[Verdict, Verdict]:
    """Ask one method about a defect and its twin.

    Args:
        method: The method.
        defect: A run of the defect.
        twin: A run of its twin, in the same place.

    Returns:
        What it says of the one and of the other.
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
    """Let a method that says nothing have the reason that lies in the end of the run."""
    return verdict if verdict.words else end


def stored(path: Path | None) -> dict[str, Outcome]:
    """Read what an earlier command has found out, by id.

    Args:
        path: A file that `store` has written; None or one that is not there holds nothing.

    Returns:
        The outcomes.
    """
    if path is None or not path.exists():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))
    return {
        entry["id"]: Outcome(
            **{
                **entry,
                "defect": _read(entry["defect"]),
                "twin": _read(entry["twin"]),
            }
        )
        for entry in entries
    }


def _read(verdicts: Mapping[str, Mapping[str, object]]) -> dict[str, Verdict]:
    return {
        name: Verdict(alarmed=bool(entry["alarmed"]), words=str(entry["words"]))
        for name, entry in verdicts.items()
    }


def store(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Write what is known so far."""
    entries = [asdict(outcome) for outcome in outcomes]
    path.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
