"""A Python that can import torch, the packages that torch requires, and `syncverify`."""

import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[4]


@pytest.fixture
def torch_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the command of a Python that has torch, its requirements and `syncverify` alone.

    `syncverify` is there since the subjects, which the scripts import, are modules of its bank.
    Hypothesis, click and all else that only the harness requires are missing.

    `PYTHONPATH` names a folder of links for the processes that the test starts.
    """
    folder = tmp_path / "torch_alone"
    folder.mkdir()
    (folder / "syncverify").symlink_to(ROOT / "syncverify")
    # A set: distributions may share a folder, as those of `nvidia` do.
    for path in {path for name in required("torch") for path in top_level(name)}:
        (folder / path.name).symlink_to(path)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return [sys.executable, "-S"]  # -S: no installed packages


def required(name: str) -> set[str]:
    """Return the names of a distribution and of all that it requires, without extras.

    Distributions that are not installed are left out: torch also names some for other platforms.
    """
    found, waiting = set[str](), [name]
    while waiting:
        current = canonicalize_name(waiting.pop())
        if current not in found and is_installed(current):
            found.add(current)
            waiting += requirements(current)
    return found


def requirements(name: str) -> Iterator[str]:
    """Yield the names that a distribution requires without extras, on any platform."""
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        if "extra ==" not in str(requirement.marker):
            yield requirement.name


def is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def top_level(name: str) -> Iterator[Path]:
    """Yield the folders and files of a distribution, without its metadata and its commands."""
    files = metadata.files(name) or []
    for first in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        path = Path(str(metadata.distribution(name).locate_file(first)))
        if not path.name.endswith(".dist-info") and path.exists():
            yield path
