"""`syncverify init` writes files that run as they are, and overwrites none."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncverify.command.init import ADAPTERS
from syncverify.scenario.feature_table import FEATURES
from syncverify.scenario.settings import RECIPE_NAMES
from syncverify.subjects.adapters import LOCAL_MEAN
from syncverify.subjects.contract_choice import read_contract
from tests.warm_python import python

Call = Callable[..., Any]
ROOT = Path(__file__).parents[4]
FILES = ("my_subject.py", "test_my_subject.py", "contract.toml")
PAGE = (ROOT / "docs" / "adapters.md").read_text()
# The two blocks after each mark: the class, and its adapter.
RECIPE_BLOCKS = re.compile(
    r"<!-- like: (\w+) -->\n```python\n(.+?)```.+?```python\n(.+?)```", re.DOTALL
)


def without_imports(code: str) -> str:
    lines = code.splitlines()
    return "\n".join(ln for ln in lines if not ln.startswith(("import ", "from ")))


@pytest.mark.parametrize("like", RECIPE_NAMES)
def test_files_are_written_and_the_next_command_is_printed(
    call: Call, tmp_path: Path, like: str
) -> None:
    outcome = call("init", "new/folder", "--like", like)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        *(f"wrote new/folder/{name}" for name in FILES),
        "next: pytest new/folder",
    ]
    for name in FILES:
        text = (tmp_path / "new" / "folder" / name).read_text()
        if name.endswith(".py"):
            compile(text, name, "exec")
        assert ADAPTERS[like] in text
        assert "$" not in text


def test_no_file_is_overwritten(call: Call, tmp_path: Path) -> None:
    existing = FILES[-1]
    (tmp_path / existing).write_text("mine")
    outcome = call("init", ".", "--like", "ddp")
    assert outcome.code == 2
    assert outcome.complaint == (
        f"'{existing}' exists already, and nothing was written; "
        "hint: name another folder"
    )
    assert (tmp_path / existing).read_text() == "mine"
    assert len([name for name in FILES if (tmp_path / name).exists()]) == 1


def test_a_folder_that_cannot_be_made_is_refused(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = call("init", "file/folder", "--like", "ddp")
    assert outcome.code == 2
    assert outcome.complaint == (
        "cannot write 'file/folder/my_subject.py': Not a directory"
    )


def test_recipes_are_those_of_the_page(call: Call, tmp_path: Path) -> None:
    shown = {like: blocks for like, *blocks in RECIPE_BLOCKS.findall(PAGE)}
    assert {*shown} == {*RECIPE_NAMES}
    for like, blocks in shown.items():
        assert blocks, like
        call("init", like, "--like", like)
        written = (tmp_path / like / "my_subject.py").read_text()
        for block in blocks:
            assert without_imports(block).strip() in written


def test_contract_is_plain_and_its_examples_are_features(
    call: Call, tmp_path: Path
) -> None:
    call("init", ".", "--like", "ddp")
    file = tmp_path / "contract.toml"
    assert read_contract(file, LOCAL_MEAN) == LOCAL_MEAN
    examples = {*re.findall(r'"(\w+)=(\w+)"', file.read_text())} - {("topic", "value")}
    assert len(examples) == 4
    assert {*examples} <= {*FEATURES}


@pytest.mark.long
@pytest.mark.parametrize(
    "like",
    [
        pytest.param(name, marks=() if name == "hooks" else pytest.mark.nightly)
        for name in RECIPE_NAMES
    ],
)
def test_written_test_passes_outside_of_the_repository(
    call: Call, tmp_path: Path, like: str
) -> None:
    call("init", "mine", "--like", like)
    test = tmp_path / "mine" / "test_my_subject.py"
    assert "examples=100" in test.read_text()
    test.write_text(test.read_text().replace("examples=100", "examples=10"))
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "mine")
    done = python(*command, folder=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
