"""Count what became of the general mutants of the harness, and list the survivors.

    python tests/mutation/general_mutants.py build/mutation

Run by `make mutation` after mutmut, in the environment that has it. Exits with 1 if a
mutant survives that `equivalent.toml` does not explain, or if it explains one that is
no survivor.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
# By what the module's name starts with.
TARGETS = {
    "race detector": ("syncverify.ordering.", "syncverify.memory."),
    "reference": tuple(
        f"syncverify.{name}."
        for name in (
            "agenda",
            "contributions",
            "distribution",
            "layout",
            "oracle",
            "owed",
        )
    ),
    "collective matcher": (
        "syncverify.properties.collectives.",
        "syncverify.properties.matching.",
        "syncverify.sim.",
    ),
}
# What mutmut calls the end of a mutant that a test has noticed: some by running too long.
NOTICED = {"killed": "killed", "timeout": "killed", "segfault": "killed"}
# `zip(strict=...)` says that lengths are equal. Where it is right, it changes nothing.
STRICT = re.compile(r"\s|,\s*strict=(?:True|False|None)|,\s*(?=\))")


@dataclass(frozen=True)
class Change:
    """What a mutant does to a function: lines of it, without the indentation."""

    function: str
    removed: str
    added: str

    @property
    def is_strictness(self) -> bool:
        """Tell whether it leaves out no more than that two lengths are equal."""
        is_said = "strict=" in self.removed and "strict=True" not in self.added
        return is_said and STRICT.sub("", self.removed) == STRICT.sub("", self.added)


@dataclass(frozen=True)
class Mutant:
    """A mutant that has been tried, or that is still to be.

    Attributes:
        name: By which mutmut knows it, as in `mutmut show NAME`.
        status: What mutmut says became of it.
        change: What it is; None if it was noticed.
    """

    name: str
    status: str
    change: Change | None


def change_of(name: str, diff: str) -> Change:
    """Read the change from a unified diff of the function."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++"))]
    removed, added = (
        "\n".join(line[1:].strip() for line in lines if line.startswith(sign))
        for sign in "-+"
    )
    return Change(function_of(name), removed, added)


def function_of(name: str) -> str:
    """Return the dotted name of a mutant's function, as people write it."""
    module, _, mangled = name.partition("__mutmut_")[0].rpartition(".")
    own = mangled.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    return f"{module}.{own}"


def reasons(file: Path = EQUIVALENT) -> dict[Change, str]:
    """Read which changes cannot be noticed, and why."""
    entries = tomllib.loads(file.read_text(encoding="utf-8"))["equivalent"]
    return {
        Change(entry["function"], removed.strip(), added.strip()): entry["reason"]
        for entry in entries
        for removed, added in entry["changes"]
    }


def outcome(mutant: Mutant, known: Iterable[Change]) -> str:
    """Name the column that a mutant is counted in."""
    change = mutant.change
    if change is not None and (change.is_strictness or change in known):
        return "equivalent"
    if mutant.status == "not checked":
        return "not tried"
    return NOTICED.get(mutant.status, "survivors")


def table(mutants: Sequence[Mutant], known: Iterable[Change]) -> str:
    """Count mutants by target, as a Markdown table."""
    columns = ("killed", "equivalent", "survivors", "not tried")
    lines = [f"| target | mutants | {' | '.join(columns)} |", "|---" * 6 + "|"]
    for target, prefixes in {**TARGETS, "all": ("",)}.items():
        own = [mutant for mutant in mutants if mutant.name.startswith(prefixes)]
        counted = Counter(outcome(mutant, known) for mutant in own)
        cells = [len(own), *(counted[column] for column in columns)]
        lines.append(f"| {target} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def complaints(mutants: Sequence[Mutant], known: dict[Change, str]) -> list[str]:
    """List survivors, and explanations of what is none."""
    survivors = [m for m in mutants if outcome(m, known) == "survivors"]
    stale = known.keys() - {mutant.change for mutant in mutants}
    return [
        *(f"{m.status}: {m.name}\n{m.change}" for m in survivors),
        *(f"no survivor: {change}" for change in stale),
    ]


def read(folder: Path) -> list[Mutant]:
    """Read what mutmut has left in a folder."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.file_utils import walk_mutatable_files

    os.chdir(folder)  # the only one that mutmut looks at
    mutants = []
    for path in sorted(walk_mutatable_files()):
        data = SourceFileMutationData(path=path)
        data.load()
        for name, code in data.exit_code_by_key.items():
            status, change = status_by_exit_code[code], None
            if status not in {"not checked", *NOTICED}:
                change = change_of(name, get_diff_for_mutant(name, path=path))
            mutants.append(Mutant(name, status, change))
    return mutants


def main(folder: Path) -> int:
    """Print everything, and return the exit status."""
    known = reasons()
    mutants = read(folder)
    complained = complaints(mutants, known)
    sys.stdout.write("\n\n".join([*complained, table(mutants, known)]) + "\n")
    return bool(complained)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
