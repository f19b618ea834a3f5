"""Count the general mutants of the harness by outcome, and list the survivors.

    python -m studies.mutants.general build/mutation

Run by `make mutation` after mutmut, in the environment of mutmut. The exit code is 1 if
`general_equivalent.toml` does not explain a survivor, or explains a mutant that is none.
"""

import os
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

EQUIVALENT = Path(__file__).with_name("general_equivalent.toml")
# Prefixes of module names, by target.
TARGETS = {
    "race detector": (
        "syncverify.judge.ordering.",
        "syncverify.trace.regions.",
        "syncverify.trace.rounds.",
    ),
    "reference": ("syncverify.scenario.", "syncverify.judge.reference."),
    "collective matcher": (
        "syncverify.judge.properties.collectives.",
        "syncverify.judge.properties.matching.",
        "syncverify.sim.",
    ),
}
# mutmut's status of a mutant that a test noticed. A mutant may also run too long.
NOTICED = {"killed": "killed", "timeout": "killed", "segfault": "killed"}
# `zip(strict=...)` asserts equal lengths. Where lengths are equal, it changes nothing.
STRICT = re.compile(r"\s|,\s*strict=(?:True|False|None)|,\s*(?=\))")


@dataclass(frozen=True)
class Change:
    """The change of a mutant to a function.

    Attributes:
        function: Name of the function.
        removed: Removed line, without indentation.
        added: Added line, without indentation.
    """

    function: str
    removed: str
    added: str

    @property
    def is_strictness(self) -> bool:
        """Tell whether only an assertion of equal lengths is left out."""
        is_said = "strict=" in self.removed and "strict=True" not in self.added
        return is_said and STRICT.sub("", self.removed) == STRICT.sub("", self.added)


@dataclass(frozen=True)
class Mutant:
    """A mutant, tried or still to be tried.

    Attributes:
        name: Name in mutmut, as in `mutmut show NAME`.
        status: Status in mutmut.
        change: The change; None for a mutant that was noticed or not tried.
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
    """Read the changes that no test can notice, each with its reason."""
    entries = tomllib.loads(file.read_text(encoding="utf-8"))["equivalent"]
    return {
        Change(entry["function"], removed.strip(), added.strip()): entry["reason"]
        for entry in entries
        for removed, added in entry["changes"]
    }


def outcome(mutant: Mutant, known: Iterable[Change]) -> str:
    """Return the table column of a mutant."""
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
    """List survivors, and explanations without a survivor."""
    survivors = [m for m in mutants if outcome(m, known) == "survivors"]
    stale = known.keys() - {mutant.change for mutant in mutants}
    return [
        *(f"{m.status}: {m.name}\n{m.change}" for m in survivors),
        *(f"no survivor: {change}" for change in stale),
    ]


def read(folder: Path) -> list[Mutant]:
    """Read the mutants that mutmut left in a folder."""
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.file_utils import walk_mutatable_files

    os.chdir(folder)  # mutmut reads the current folder only
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
    """Print survivors and table, and return the exit code."""
    known = reasons()
    mutants = read(folder)
    complained = complaints(mutants, known)
    sys.stdout.write("\n\n".join([*complained, table(mutants, known)]) + "\n")
    return bool(complained)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
