"""Functions of an imported file with changed code, and as they were afterwards."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from syncverify.repair.source_edit import (
    Edit,
    LiveFile,
    NotEditableError,
)

TEXT = """\
class Counts:
    def count(self):
        return 1

    def both(self):
        return [self.count(), (lambda: 2)()]
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "edited_module.py").write_text(TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("edited_module")
    del sys.modules["edited_module"]


def edit_of(module: ModuleType, line: int, *lines: str) -> tuple[LiveFile, Edit]:
    file = LiveFile(str(module.__file__))
    node = file.source.statement_at(line)
    assert node is not None
    return file, Edit.instead(str(module.__file__), node, *lines)


def test_a_change_holds_for_a_block_and_for_objects_that_exist(
    module: ModuleType,
) -> None:
    counts = module.Counts()
    file, edit = edit_of(module, 3, "return 7")
    with file.in_force(edit):
        assert counts.both() == [7, 2]
    assert counts.both() == [1, 2]


def test_a_change_that_is_no_program_is_refused(module: ModuleType) -> None:
    file, edit = edit_of(module, 3, "return (")
    with pytest.raises(NotEditableError), file.in_force(edit):
        pass


def test_a_file_that_changed_since_its_import_is_refused(module: ModuleType) -> None:
    path = Path(str(module.__file__))
    path.write_text(TEXT.replace("return 1", "return 3 + len([])"))
    file, edit = edit_of(module, 3, "return 7")
    with pytest.raises(NotEditableError), file.in_force(edit):
        pass
