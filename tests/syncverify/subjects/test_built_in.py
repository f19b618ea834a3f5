"""Built-in subjects are read from the source of their modules, or refused by one line."""

import shutil
import zipfile
from pathlib import Path

import pytest

from syncverify.errors import SubjectError
from syncverify.subjects.built_in import BuiltIn, declared


@pytest.mark.parametrize("form", ["{} = {}", "{}: Final = {}"])
def test_literals_are_read(tmp_path: Path, form: str) -> None:
    lines = [form.format("SUBJECTS", {"mine": "Mine"}), form.format("PACKAGE", "'own'")]
    (tmp_path / "one.py").write_text("\n".join(lines))
    (tmp_path / "other.py").write_text("def f():\n    SUBJECTS = PACKAGE = None\n")
    found = {"mine": BuiltIn("p.one:Mine", "own")}
    assert declared(tmp_path, "p") == found
    archive = shutil.make_archive(str(tmp_path / "package"), "zip", tmp_path)
    assert declared(zipfile.Path(archive), "p") == found


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("SUBJECTS", "SUBJECTS: Final"),
        ("SUBJECTS", "SUBJECTS = dict(mine='Mine')"),
        ("SUBJECTS", "SUBJECTS = {'mine'}"),
        ("SUBJECTS", "SUBJECTS = NAMES = {'mine': 'Mine'}"),
        ("SUBJECTS", "if True: SUBJECTS = {'mine': 'Mine'}"),
        ("PACKAGE", "SUBJECTS = {'mine': 'Mine'}; PACKAGE = 'a'.lower()"),
        ("PACKAGE", "SUBJECTS = {'mine': 'Mine'}; PACKAGE = None"),
    ],
)
def test_a_declaration_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, line: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"import torch\n{line}\n")
    with pytest.raises(SubjectError) as refusal:
        declared(tmp_path, "p")
    expected = f"{file}:2: {name} cannot be read; expected a literal, such as {name} = "
    assert str(refusal.value).startswith(expected)
