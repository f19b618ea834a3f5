"""A Python that has torch, the packages that torch requires, and nothing else."""

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.fixture
def torch_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the command of a Python without installed packages but torch's own.

    `syncverify` is there as the folder that holds the bank, which is the subjects' own module;
    Hypothesis, click and all else that the harness requires are not.
    """
    folder = tmp_path / "torch_alone"
    folder.mkdir()
    (folder / "syncverify").symlink_to(ROOT / "syncverify")
    for name in sorted(required("torch")):
        for file in top_level(name):
            (folder / file.name).symlink_to(file)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return [sys.executable, "-S"]  # -S: no installed packages


def required(name: str) -> set[str]:
    """Return a distribution and those that it requires without extras."""
    found = {name}
    for line in metadata.requires(name) or ():
        needed = re.match(r"[\w.-]+", line)
        if needed and "extra ==" not in line and is_installed(needed[0]):
            found |= required(needed[0])
    return found


def is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def top_level(name: str) -> Iterator[Path]:
    """Yield the folders and files of a distribution that can be imported."""
    files = metadata.files(name) or []
    for first in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        path = Path(str(metadata.distribution(name).locate_file(first)))
        if not path.name.endswith(".dist-info") and path.exists():
            yield path
