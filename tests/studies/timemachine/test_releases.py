"""Releases are unpacked, repaired and played; their archives are made here."""

import shutil
from pathlib import Path

import pytest

from studies.timemachine.pairs import Edit, Pair
from studies.timemachine.playing import play
from studies.timemachine.releases import Releases

SUBJECT = """\
import torch.distributed as dist
from syncverify.subjects.adapters import HooksAdapter


class Subject(HooksAdapter):
    def wrap(self, module):
        return object()

    def synchronize(self):
        for parameter in self.trainable():
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(1)
"""
FILES = ("__init__.py", "inner/kept.py", "inner/part/taken.py")
REMEDY = Edit("subject.py", "div_(1)", "div_(dist.get_world_size())")
PAIR = Pair(
    "a pair",
    "package",
    "1",
    "It sums.",
    issue="owner/repository#2",
    subject="subject:Subject",
    violates="gradient_equals_reference",
    cause="scaled",
)


@pytest.fixture
def releases(tmp_path: Path) -> Releases:
    """Return releases of which `package 1` is downloaded already."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "subject.py").write_text(SUBJECT)
    archive = tmp_path / "cache" / "archives" / "package-1" / "package-1-py3-none-any"
    archive.parent.mkdir(parents=True)
    shutil.make_archive(str(archive), "zip", source)
    return Releases(tmp_path / "cache")


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Releases:
    """Return releases of an installed package, of which version 2 is downloaded already."""
    installed, released = tmp_path / "installed" / "made", tmp_path / "new" / "made"
    for folder, text in ((installed, "old"), (released, "new")):
        (folder / "inner" / "part").mkdir(parents=True)
        for file in FILES:
            (folder / file).write_text(f"# {text}")
    monkeypatch.syspath_prepend(installed.parent)
    archive = tmp_path / "cache" / "archives" / "made-2" / "made-2"
    archive.parent.mkdir(parents=True)
    shutil.make_archive(str(archive), "zip", released.parent)
    return Releases(tmp_path / "cache")


def texts(folder: Path) -> list[str]:
    """Return what the files of an unpacked release say."""
    return [(folder / "made" / file).read_text() for file in FILES]


def test_a_part_of_a_release_is_laid_over_the_installed_package(
    parts: Releases,
) -> None:
    folder = parts.unpacked("made", "2", "made/inner/part")
    assert texts(folder) == ["# old", "# old", "# new"]


def test_a_remedy_of_a_part_copies_no_installed_file(parts: Releases) -> None:
    remedy = Edit("made/inner/part/taken.py", "new", "right")
    folder = parts.repaired("made", "2", [remedy], "made/inner/part")
    assert texts(folder) == ["# old", "# old", "# right"]
    assert (folder / "made" / "inner" / "kept.py").is_symlink()


def test_a_remedy_changes_a_copy(releases: Releases) -> None:
    folder = releases.repaired("package", "1", [REMEDY])
    assert "get_world_size" in (folder / "subject.py").read_text()
    unpacked = releases.unpacked("package", "1") / "subject.py"
    assert unpacked.read_text() == SUBJECT


@pytest.mark.nightly
def test_a_release_is_caught_and_its_remedy_is_silent(releases: Releases) -> None:
    found = play(PAIR, [releases.unpacked("package", "1")], examples=6, stops=True)
    assert "gradient_equals_reference" in found.diagnosis
    repaired = releases.repaired("package", "1", [REMEDY])
    assert play(PAIR, [repaired], examples=6).is_silent
