"""One script of a finding, played by a Python with some torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from studies.findings.patching import PatchError, patched_folder

ROOT: Final = Path(__file__).parents[2]
SCRIPTS: Final = ROOT / "examples" / "findings"
_MISSING: Final = re.compile(
    r"^ModuleNotFoundError: No module named '(\w+)", re.MULTILINE
)
_ACTUAL: Final = re.compile(r"^(?:actual|not shown):? *(.*)$", re.MULTILINE)
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


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a script.

    Attributes:
        verdict: `shown`, `not shown`, `failed`, or the package that is missing: `needs d9d`.
        actual: What the script prints as actual; "" if it prints nothing.
        patched: The verdict with the proposed patch; "" if there is none, or it does not fit.
    """

    verdict: str
    actual: str
    patched: str = ""

    @property
    def lacks_package(self) -> bool:
        """Tell whether the Python has no such package, so that nothing was played."""
        return self.verdict.startswith("needs ")


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


def played(script: Path, environment: Environment) -> Played:
    """Play a script, and once more with its patch, if there is one."""
    found = _run(script, environment, {})
    patch = script.with_suffix(".patch")
    if Played(*found).lacks_package or not patch.exists():
        return Played(*found)
    with tempfile.TemporaryDirectory() as folder:
        try:
            path = patched_folder(patch, environment.folder.parent, Path(folder))
        except PatchError:
            return Played(*found)
        return Played(*found, _run(script, environment, path_of(path))[0])


def path_of(folder: Path) -> dict[str, str]:
    """Return the variable that puts a folder first on the path of modules."""
    return {"PYTHONPATH": str(folder)}


def _run(
    script: Path, environment: Environment, variables: Mapping[str, str]
) -> tuple[str, str]:
    done = subprocess.run(
        [environment.python, str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if missing := _MISSING.search(done.stderr):
        return f"needs {missing[1]}", ""
    found = _ACTUAL.search(done.stdout)
    if done.returncode not in {0, 1} or found is None:  # a traceback ends with 1, too
        return FAILED, ""
    return NOT_SHOWN if done.returncode else SHOWN, found[1]
