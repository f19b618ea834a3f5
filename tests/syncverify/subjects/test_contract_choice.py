"""The contract of a subject: chosen by a caller, its own, the project's, or plain."""

from pathlib import Path
from typing import ClassVar

import pytest

from syncverify.errors import UsageError
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.contract_choice import chosen_contract
from syncverify.subjects.subject import resolve

OWN = Capabilities(reduction="mean", features=frozenset({"event"}))


class Undeclared:
    def __init__(self, groups: object, size: float, count: int) -> None: ...
    def bind(self) -> None: ...
    def wait(self) -> None: ...
    def zero_grad(self) -> None: ...
    def unbind(self) -> None: ...


class Declared(Undeclared):
    capabilities: ClassVar = OWN


def test_plain_steps_are_the_contract_of_a_class_that_declares_none() -> None:
    assert resolve(Undeclared).capabilities == Capabilities()


@pytest.mark.parametrize(("name", "asked"), [("plain", False), ("everything", True)])
def test_a_name_replaces_features_alone(name: str, *, asked: bool) -> None:
    chosen = resolve(Declared, name).capabilities
    assert chosen.reduction == "mean"
    assert chosen.covers("use", "twice") == asked
    assert chosen.covers("event", "tail") == asked


def test_a_built_in_subject_lends_its_whole_contract() -> None:
    ddp = resolve("ddp").capabilities
    chosen = chosen_contract("ddp", Capabilities())
    assert (chosen.reduction, chosen.tensors) == ("mean", "local")
    assert chosen.covers("event", "rebind") == ddp.covers("event", "rebind")


def test_a_project_chooses_for_classes_that_declare_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.syncverify]\ncontract = "mine.toml"\n'
    )
    (tmp_path / "mine.toml").write_text('right = ["use=twice"]\n')
    (inner := tmp_path / "inner").mkdir()
    monkeypatch.chdir(inner)
    assert resolve(Undeclared).capabilities.covers("use", "twice")
    assert resolve(Declared).capabilities == OWN


@pytest.mark.parametrize(
    "text",
    [
        "[tool",
        "[tool.syncverify]\ncontract = 3\n",
        "tool = 5",
        "[tool]\nsyncverify = 5",
    ],
)
def test_a_project_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"pyproject\.toml"):
        resolve(Undeclared)
