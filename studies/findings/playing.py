"""Scripts of findings, each played by a Python with some torch, and the table of all."""

import contextlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from studies.documents import ROOT, Document, table
from studies.findings.patching import PatchError, patched_folder
from studies.rows import RESULTS, RowFile, today

SCRIPTS: Final = ROOT / "examples" / "findings"
_MISSING: Final = re.compile(
    r"^ModuleNotFoundError: No module named '(\w+)", re.MULTILINE
)
_ACTUAL: Final = re.compile(r"^(?:actual|not shown)", re.MULTILINE)
_ENVIRONMENT: Final = """
import importlib.util, json, platform
from importlib.metadata import PackageNotFoundError, version
def versions(names):
    for name in names:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            pass
folder = importlib.util.find_spec("torch").submodule_search_locations[0]
found = dict(versions(["torch", "d9d", "deepspeed", "megatron-core"]))
print(json.dumps([found, platform.python_version(), folder]))
"""
SHOWN, NOT_SHOWN, FAILED = "shown", "not shown", "failed"


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python with a torch.

    Attributes:
        python: Its executable.
        packages: Versions of torch and of the peers that are installed, by name.
        version: Version of Python.
        folder: Folder of the package torch.
    """

    python: str
    packages: Mapping[str, str]
    version: str
    folder: Path

    @property
    def torch(self) -> str:
        """Version of torch, such as `2.15.0`."""
        return self.packages["torch"].partition("+")[0]

    def peer(self, script: Path) -> str:
        """Return name and version of the package that a script is about; "" for torch's."""
        names = (
            name
            for name in self.packages
            if name.split("-")[0] == script.stem.split("_")[0]
        )
        return " ".join(f"{name} {self.packages[name]}" for name in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The result of a script.

    Attributes:
        torch: Release of torch.
        script: Name of the script.
        date: Day of the play.
        python: Version of Python.
        peer: Name and version of the package that the script is about; empty for torch's.
        verdict: `shown`, `not shown`, `failed`, or the package that is missing: `needs d9d`.
        patched: The verdict with the proposed patch; empty if there is none, or it does not fit.
    """

    torch: str
    script: str
    date: str
    python: str
    peer: str = ""
    verdict: str
    patched: str = ""

    @property
    def lacks_package(self) -> bool:
        """Tell whether the Python has no such package, so that nothing was played."""
        return self.verdict.startswith("needs ")


PLAYS: Final = RowFile(RESULTS / "findings.jsonl", Row, ("torch", "script"))


def scripts() -> list[Path]:
    """List the scripts, each with one finding."""
    return [each for each in sorted(SCRIPTS.glob("*.py")) if each.stem != "no_cuda"]


def environment_of(python: str) -> Environment:
    """Ask a Python for its version and for its torch."""
    process = subprocess.run(
        [python, "-c", _ENVIRONMENT], capture_output=True, text=True, check=True
    )
    packages, version, folder = json.loads(process.stdout)
    return Environment(python, packages, version, Path(folder))


def played(script: Path, environment: Environment) -> Row:
    """Play a script, and once more with its patch, if there is one."""
    verdict = _verdict(script, environment, {})
    patch, patched = script.with_suffix(".patch"), ""
    if not verdict.startswith("needs ") and patch.exists():
        packages = environment.folder.parent
        with contextlib.suppress(PatchError), tempfile.TemporaryDirectory() as folder:
            path = patched_folder(patch, packages, Path(folder))
            patched = _verdict(script, environment, path_of(path))
    return Row(
        torch=environment.torch,
        script=script.stem,
        date=today(),
        python=environment.version,
        peer=environment.peer(script),
        verdict=verdict,
        patched=patched,
    )


def path_of(folder: Path) -> dict[str, str]:
    """Return the variable that puts a folder first on the path of modules."""
    return {"PYTHONPATH": str(folder)}


def _verdict(
    script: Path, environment: Environment, variables: Mapping[str, str]
) -> str:
    done = subprocess.run(
        [environment.python, str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if missing := _MISSING.search(done.stderr):
        return f"needs {missing[1]}"
    # A traceback ends with 1, too.
    if done.returncode not in {0, 1} or not _ACTUAL.search(done.stdout):
        return FAILED
    return NOT_SHOWN if done.returncode else SHOWN


def plays() -> str:
    """Return the table of the stored results."""
    rows = {(row.torch, row.script): row for row in PLAYS.read()}
    releases = sorted(
        {torch for torch, _ in rows}, key=lambda each: [*map(int, each.split("."))]
    )
    cells = (
        (
            f"`{script.stem}`",
            *(_cell(rows.get((torch, script.stem))) for torch in releases),
        )
        for script in scripts()
    )
    return "\n".join(table(("script", *(f"torch {each}" for each in releases)), cells))


def _cell(row: Row | None) -> str:
    if row is None:
        return "not played"
    words = row.verdict
    if row.patched == NOT_SHOWN:
        words += "; with the patch: right"
    python = f"Python {row.python.rpartition('.')[0]}"
    return f"{words} ({', '.join(filter(None, (row.peer, python, row.date)))})"


PART: Final = Document("docs/findings.md", plays, "plays")
