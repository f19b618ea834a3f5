"""Subjects reach the processes that run them, wherever they are defined."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cloudpickle
import pytest

from syncverify.playing.gloo import GlooBackend
from syncverify.playing.messages import pack_subject
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from tests.quality.planted.timing import ReducesInSeededOrder

ONE_RANK = Scenario(
    MeshSpec((1,), ("dp",)), (ParameterSpec("p0", (2,), ("R",)),), (1,), 2**20
)
SOURCE = """
import math
from tests.quality.planted.timing import ReducesInSeededOrder

FACTOR = 3

def factor():
    return FACTOR

class Local(ReducesInSeededOrder):
    def wait(self):
        super().wait()
        for bucket in self.buckets:
            bucket.buffer.mul_(factor())
"""


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[ModuleType]:
    """A module that no other process can import."""
    file = tmp_path / "nowhere_to_be_found.py"
    file.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("nowhere_to_be_found", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


class DefinedInThisTest(ReducesInSeededOrder):
    pass


@pytest.mark.long
def test_subject_of_a_module_that_cannot_be_imported_runs(nowhere: ModuleType) -> None:
    backend = GlooBackend()
    try:
        run = backend.run(ONE_RANK, resolve(nowhere.Local))
        right = backend.run(ONE_RANK, resolve(DefinedInThisTest))
    finally:
        backend.close()
    assert run.fault is None
    assert right.fault is None
    tripled, once = (
        each.ranks[0].at("reduced", 0).gradients["p0"] for each in (run, right)
    )
    assert tripled.equal(once * 3)


def test_only_what_cannot_be_imported_travels_by_value(nowhere: ModuleType) -> None:
    packed = pack_subject(resolve(nowhere.Local))
    assert b"FACTOR" in packed
    assert b"shuffle" not in packed  # its base class is importable, by sys.path
    assert cloudpickle.list_registry_pickle_by_value() == set()
    assert len(pack_subject(resolve(ReducesInSeededOrder))) < len(packed)


def test_this_package_is_not_copied_beside_one_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes import this package first, whatever a folder on the path holds."""
    before = pack_subject(resolve("ddp"))
    (tmp_path / "syncverify").mkdir()
    (tmp_path / "syncverify" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert pack_subject(resolve("ddp")) == before
