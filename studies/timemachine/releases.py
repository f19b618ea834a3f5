"""Releases of packages, each unpacked into a folder for PYTHONPATH."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from filelock import FileLock

from studies.timemachine.pairs import Edit

# Of a package's name and version, pip makes the name of a file in one of these forms.
_ARCHIVES: Final = ("*.whl", "*.tar.gz", "*.zip")
_NEWER_PYTHON: Final = "3.13"  # the newest that this project is tested on
# Of torch, the smallest files: their Python code is that of all platforms.
_SMALL: Final = ("--platform", "macosx_11_0_arm64", "--platform", "macosx_14_0_arm64",
                 "--python-version", "3.11", "--only-binary", ":all:")  # fmt: skip


class Releases:
    """Downloads releases, once.

    Args:
        cache: Folder for archives and unpacked releases.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        cache.mkdir(parents=True, exist_ok=True)
        # Processes that play sides share releases.
        self._lock = FileLock(cache / "lock")

    def unpacked(self, package: str, version: str, part: str = "") -> Path:
        """Return the folder with the top-level packages of a release.

        A source distribution is unpacked and not built: its Python code is all that runs.

        Args:
            package: Name on PyPI.
            version: Version of the release.
            part: Folder of the release that is laid over the installed package, if not all is.

        Returns:
            The folder.
        """
        folder = self._cache / "releases" / _name(package, version, part)
        with self._lock:
            if not folder.exists():
                archive = self._downloaded(package, version, _SMALL if part else ())
                new = folder.with_name(f"{folder.name}.part")
                shutil.rmtree(new, ignore_errors=True)
                if part:
                    _lay_over(archive, part, new)
                else:
                    _unpack(archive, new)
                new.rename(folder)
        # The archive of a source distribution has one folder, named after the release.
        inner = [entry for entry in folder.iterdir() if (entry / "setup.py").exists()]
        return inner[0] if inner else folder

    def repaired(
        self, package: str, version: str, remedy: Sequence[Edit], part: str = ""
    ) -> Path:
        """Return the folder of a release with the edits of a remedy, a copy if there are any."""
        original = self.unpacked(package, version, part)
        if not remedy:
            return original
        edits = hashlib.sha256(repr(remedy).encode()).hexdigest()[:8]
        copy = self._cache / "repaired" / f"{_name(package, version, part)}-{edits}"
        with self._lock:
            if not copy.exists():
                new = copy.with_name(f"{copy.name}.part")
                shutil.rmtree(new, ignore_errors=True)
                shutil.copytree(original, new, symlinks=True)  # most of a part
                for edit in remedy:
                    _apply(edit, new, f"{package} {version}")
                new.rename(copy)
        return copy

    def installed(self, package: str, requirements: Sequence[str]) -> Path:
        """Return a folder with the packages that a package imports, without torch."""
        folder = self._cache / "imports" / package
        wanted = "\n".join(requirements)
        receipt = folder / "requirements.txt"
        with self._lock:
            if not receipt.exists() or receipt.read_text(encoding="utf-8") != wanted:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                if requirements:
                    _pip("install", "--no-deps", "--target", str(folder), *requirements)
                receipt.write_text(wanted, encoding="utf-8")
        return folder

    def _downloaded(self, package: str, version: str, options: Sequence[str]) -> Path:
        folder = self._cache / "archives" / f"{package}-{version}"
        if not _archives(folder):
            folder.mkdir(parents=True, exist_ok=True)
            _download(f"{package}=={version}", folder, options)
        return _archives(folder)[0]


def _name(package: str, version: str, part: str) -> str:
    """Name the folder of a release: each part of a version has its own."""
    return "-".join([package, version, *part.split("/")[1:]])


def _apply(edit: Edit, folder: Path, release: str) -> None:
    file = folder / edit.file
    text = file.read_text(encoding="utf-8")
    if text.count(edit.old) != 1:
        raise click.ClickException(
            f"expected the text of a remedy once in {edit.file} of {release}, "
            f"found it {text.count(edit.old)} times: {edit.old!r}"
        )
    file.write_text(text.replace(edit.old, edit.new), encoding="utf-8")


def _download(requirement: str, folder: Path, options: Sequence[str]) -> None:
    """Download a release, in the form for a newer Python if there is none for this one.

    Its Python code is all that runs, and that of a release which asks for a newer Python may
    run on this one all the same.
    """
    wanted = ("download", "--no-deps", "--dest", str(folder), *options)
    try:
        _pip(*wanted, requirement)
    except click.ClickException:
        newer = ("--python-version", _NEWER_PYTHON, "--only-binary", ":all:")
        _pip(*wanted, *newer, requirement)


def _archives(folder: Path) -> list[Path]:
    return [found for pattern in _ARCHIVES for found in sorted(folder.glob(pattern))]


def _unpack(archive: Path, folder: Path) -> None:
    if archive.suffix in {".whl", ".zip"}:
        shutil.unpack_archive(archive, folder, "zip")
    else:
        shutil.unpack_archive(archive, folder, "gztar", filter="data")


def _lay_over(archive: Path, part: str, folder: Path) -> None:
    """Make the installed package, by links, with one folder of a release in place of its own."""
    package, *inner = part.split("/")
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    _link(Path(found.origin).parent, folder / package, inner)
    with zipfile.ZipFile(archive) as wheel:
        names = [name for name in wheel.namelist() if name.startswith(f"{part}/")]
        wheel.extractall(folder, names)


def _link(installed: Path, folder: Path, inner: Sequence[str]) -> None:
    """Link to all that a folder has but the first of the inner folders."""
    folder.mkdir(parents=True)
    for entry in installed.iterdir():
        if entry.name not in {inner[0], "__pycache__"}:
            (folder / entry.name).symlink_to(entry)
    if inner[1:]:
        _link(installed / inner[0], folder / inner[0], inner[1:])


def _pip(command: str, *arguments: str) -> None:
    """Run pip; setup.py of a source distribution sees the torch that is installed."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", "--no-build-isolation",
         "--disable-pip-version-check", *arguments],
        env={**os.environ, "DS_BUILD_OPS": "0"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise click.ClickException(
            f"pip {command} {arguments[-1]} failed: {done.stderr.strip()[-600:]}"
        )
