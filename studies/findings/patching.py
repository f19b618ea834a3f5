"""A patch of a package in force: for the Python processes that find a folder on PYTHONPATH."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

_FILE: Final = re.compile(r"^\+\+\+ b/(\w+/\S+\.py)$", re.MULTILINE)
# Python imports `sitecustomize` when it starts. The patched files take the place of the package's.
_HOOK: Final = """\
import importlib.util
import sys

PATCHED = {patched!r}


class PatchedFiles:
    @staticmethod
    def find_spec(name, path=None, target=None):
        file = PATCHED.get(name)
        return file and importlib.util.spec_from_file_location(name, file)


sys.meta_path.insert(0, PatchedFiles)
"""


class PatchError(Exception):
    """A patch does not fit a release."""


def patched_folder(patch: Path, packages: Path, folder: Path) -> Path:
    """Write a folder for PYTHONPATH that puts a patch in force.

    Args:
        patch: Unified diff whose paths begin with `a/` and the name of a package.
        packages: Folder of the installed packages, which stay as they are.
        folder: Empty folder outside of a repository.

    Returns:
        The folder.

    Raises:
        PatchError: The patch does not fit.
    """
    files = _FILE.findall(patch.read_text(encoding="utf-8"))
    for file in files:
        copy = folder / "changed" / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(packages / file, copy)
    done = subprocess.run(
        ["git", "apply", "--recount", str(patch.resolve())],
        cwd=folder / "changed",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not files:
        raise PatchError(f"{patch.name} does not fit: {done.stderr.strip()}")
    patched = {
        file.removesuffix(".py").replace("/", "."): str(folder / "changed" / file)
        for file in files
    }
    hook = _HOOK.format(patched=patched)
    (folder / "sitecustomize.py").write_text(hook, encoding="utf-8")
    return folder
