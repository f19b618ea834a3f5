"""Subjects are found by name, path or object; what cannot be one is refused in one line."""

import inspect
import shutil
import sys
import types
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from syncverify.errors import SubjectError, UsageError
from syncverify.scenario.contract import FEATURE_FIELDS, Capabilities
from syncverify.search.observation import features_beyond
from syncverify.subjects.built_in import BuiltIn, declared
from syncverify.subjects.contract_choice import chosen_contract
from syncverify.subjects.own_synchronizer import OwnSynchronizer
from syncverify.subjects.subject import BUILT_IN_SUBJECTS, resolve
from syncverify.subjects.subject_api import check_methods
from syncverify.subjects.subject_path import imported, path_of
from syncverify.synchronizer import GradientSynchronizer


class Complete:
    """The least that a subject can be."""

    def __init__(
        self, groups: list[list[nn.Parameter]], bucket_size_mb: float, count: int
    ) -> None: ...
    def bind(self) -> None: ...
    def wait(self) -> None: ...
    def zero_grad(self) -> None: ...
    def unbind(self) -> None: ...


class Declared(Complete):
    capabilities = Capabilities(reduction="mean", tensors="local")


class Varying(Complete):
    def set_required_accumulations(self, require_accumulations: int) -> None: ...


class LacksWait:
    def __init__(self, *_arguments: object) -> None: ...
    def bind(self) -> None: ...
    def zero_grad(self) -> None: ...

    unbind = None


NEEDS_CALL = "; without require_accumulations it needs set_required_accumulations()"


class TwoArguments(Complete):
    def __init__(
        self, groups: list[list[nn.Parameter]], bucket_size_mb: float
    ) -> None: ...


class KeywordOnly(Complete):
    def __init__(
        self, *, groups: object, bucket_size_mb: float, count: int
    ) -> None: ...


def factory(groups: Any, bucket_size_mb: float, count: int) -> Complete:
    return Complete(groups, bucket_size_mb, count)


def refusal(subject: Any) -> str:
    with pytest.raises(SubjectError) as caught:
        resolve(subject)
    return str(caught.value)


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the user's folder, and make it the working directory."""
    (tmp_path / "mine_ok.py").write_text(
        "class Empty:\n    def __init__(self, *arguments): ...\n"
        "class Outer:\n    class Inner(Empty):\n"
        "        def bind(self): ...\n        wait = zero_grad = unbind = bind\n"
        "number = 3\n"
    )
    (tmp_path / "mine_broken.py").write_text("1 / 0\n")
    (tmp_path / "mine_syntax.py").write_text("def f(:\n")
    (tmp_path / "mine_exits.py").write_text("raise SystemExit(0)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(tmp_path)])
    for name in ("mine_ok", "mine_broken", "mine_syntax", "mine_exits"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_our_synchronizer_is_built_in_and_promises_all_but_one_event() -> None:
    ours = resolve("synchronizer")
    assert ours.name == "synchronizer"
    assert inspect.getmro(ours.factory)[:2] == (OwnSynchronizer, GradientSynchronizer)
    assert features_beyond(ours.capabilities) == ["event=unbind_early"]
    assert ours.capabilities.overlaps_backward


def test_class_of_the_working_directory_is_found() -> None:
    found = resolve("mine_ok:Outer.Inner")
    assert found.name == "mine_ok:Outer.Inner"
    assert found.factory.__qualname__ == "Outer.Inner"


@pytest.mark.parametrize(
    ("subject", "capabilities"),
    [
        (Complete, Capabilities()),
        (factory, Capabilities()),
        (Varying, Capabilities(varying_accumulations=True)),
        (Declared, Capabilities(reduction="mean", tensors="local")),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_class_or_factory_is_taken_as_it_is(
    subject: Callable[..., Any], capabilities: Capabilities
) -> None:
    found = resolve(subject)
    assert found.name.endswith(f"test_subject:{subject.__qualname__}")
    assert found.factory is subject
    assert found.capabilities == capabilities


class NamesFeatures(Complete):
    features = ("event",)
    outside = frozenset({"event=tail", "dtype=float16"})
    # A property of its objects, and no part of a contract.
    right = property(lambda self: True)


class NamesWrongFeatures(Complete):
    outside = ("dtype=flaot16",)


def test_a_class_without_capabilities_names_features_by_attributes() -> None:
    assert resolve(NamesFeatures).capabilities == Capabilities(
        features=frozenset({"event"}),
        outside=frozenset({"event=tail", "dtype=float16"}),
    )


WRONG_VALUES = (
    st.integers() | st.text() | st.floats() | st.lists(st.integers(), min_size=1)
)


@pytest.mark.long
@given(
    field=st.sampled_from((*FEATURE_FIELDS, "overlaps_backward", "capabilities")),
    value=WRONG_VALUES,
)
def test_a_wrong_value_of_an_attribute_is_refused_by_name(
    field: str, value: object
) -> None:
    text = refusal(type("Mine", (Complete,), {field: value}))
    assert text.startswith("subject ")
    assert f": expected `{field}` " in text
    assert repr(value) in text
    assert "\n" not in text


def test_names_of_features_are_checked() -> None:
    with pytest.raises(UsageError) as caught:
        resolve(NamesWrongFeatures)
    assert str(caught.value) == (
        f"contract of subject {path_of(NamesWrongFeatures)!r}: unknown feature 'dtype=flaot16' in "
        "`outside`, expected `topic` or `topic=value`; the nearest is 'dtype=float16'"
    )


@pytest.mark.parametrize("text", ["nothing", "", ":", "module:", ":Class", "a.b.c"])
def test_a_name_that_is_neither_built_in_nor_a_path_is_refused(text: str) -> None:
    assert refusal(text) == (
        f"unknown subject {text!r}: expected one of {', '.join(sorted(BUILT_IN_SUBJECTS))}, "
        "module:attribute or file.py:attribute"
    )


IMPORTED = "cannot be imported: "


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nosuch.module:Thing", f"{IMPORTED}ModuleNotFoundError: No module named 'nosuch'"),
        ("mine_ok:Nope", f"{IMPORTED}AttributeError: module 'mine_ok' has no attribute 'Nope'"),
        ("mine_ok:number", "is not callable: expected a class or factory"),
        ("mine_broken:Thing", f"{IMPORTED}ZeroDivisionError: division by zero, at mine_broken.py:1"),
        ("mine_exits:Thing", f"{IMPORTED}SystemExit: 0, at mine_exits.py:1"),
        ("mine_syntax:Thing", f"{IMPORTED}SyntaxError: invalid syntax (mine_syntax.py, line 1)"),
        (
            "..:Thing",
            (f"{IMPORTED}TypeError: the 'package' argument is required to perform a relative import "
            "for '..'"),
        ),
    ],
)  # fmt: skip
def test_failed_imports_are_named(path: str, reason: str) -> None:
    assert refusal(path) == f"subject {path!r} {reason}"


def test_a_file_is_found_by_its_path_and_in_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    package = tmp_path / "by_path"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "part.py").write_text("from .rest import Thing\n")
    (package / "rest.py").write_text("class Thing: pass\n")
    (tmp_path / "abc.py").write_text("Thing = 3\n")
    monkeypatch.chdir(tmp_path)
    assert imported("by_path/part.py:Thing", "layer").__module__ == "by_path.rest"
    assert refusal("by_path/nosuch.py:Thing") == (
        "subject 'by_path/nosuch.py:Thing' cannot be imported: ImportError: there is no "
        "file by_path/nosuch.py"
    )
    assert refusal("abc.py:Thing").endswith("rename the file")


def test_missing_methods_are_listed() -> None:
    assert refusal(LacksWait) == (
        f"subject {path_of(LacksWait)!r} lacks wait(), unbind(): "
        "a subject has bind(), wait(), zero_grad(), unbind()"
    )


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        (TwoArguments, "too many positional arguments" + NEEDS_CALL),
        (KeywordOnly, "too many positional arguments"),
        (lambda: None, "too many positional arguments"),
        (lambda a, b, c, d: None, "missing a required argument: 'd'"),
    ],
)
def test_a_signature_that_does_not_take_three_arguments_is_refused(
    subject: Callable[..., Any], reason: str
) -> None:
    assert refusal(subject) == (
        f"subject {path_of(subject)!r} cannot be called as "
        f"(param_groups, bucket_size_mb, require_accumulations): {reason}"
    )


class TakesCountByCall(TwoArguments):
    def set_required_accumulations(self, count: int) -> None: ...


@pytest.mark.parametrize(
    "subject", [TakesCountByCall, lambda groups, size: TakesCountByCall(groups, size)]
)
def test_a_count_may_come_by_a_call_alone(subject: Callable[..., Any]) -> None:
    assert not resolve(subject).takes_count


def test_what_a_function_makes_has_to_take_a_count() -> None:
    with pytest.raises(SubjectError) as caught:
        check_methods(TwoArguments([], 1.0), "made", takes_count=False)
    assert str(caught.value) == (
        "subject 'made' lacks set_required_accumulations(): a subject has bind(), wait(), "
        "zero_grad(), unbind(), set_required_accumulations()"
    )


class Hides(Complete):
    not_observed: ClassVar[dict[str, str]] = {"event=wait_tvice": "it waits once"}


def test_what_a_class_leaves_out_has_to_be_features() -> None:
    assert refusal(Hides) == (
        f"subject {path_of(Hides)!r}: expected features in not_observed, got 'event=wait_tvice'"
    )
    assert resolve(Complete).not_observed == {}
    hidden = {"event=unfreeze", "use=fused_accumulation", "use=fused_main_grad"}
    assert hidden <= {*resolve("fsdp2").not_observed}


class Planned(Complete):
    @abstractmethod
    def start(self) -> None: ...


class Abstract(Planned, ABC):
    """A class that Python makes no instance of."""


class Started(Planned):
    def start(self) -> None: ...


@pytest.mark.parametrize("subject", [Planned, Abstract])
def test_abstract_methods_are_missing_ones(subject: type[Planned]) -> None:
    assert refusal(subject) == (
        f"subject {path_of(subject)!r} lacks start(): Planned leaves it to its subclasses"
    )
    resolve(Started)


def test_a_file_without_a_class_names_its_classes(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class One: pass\nclass Two: pass\nraise SystemExit\n")
    with pytest.raises(SubjectError, match="name one class") as caught:
        resolve(str(file))
    assert str(caught.value).endswith(f": {file}:One, {file}:Two")


# Built-in subjects are read from the source of their modules, or refused by one line.


@pytest.mark.parametrize("form", ["{} = {}", "{}: Final = {}"])
def test_literals_are_read(tmp_path: Path, form: str) -> None:
    (folder := tmp_path / "p").mkdir()
    lines = [form.format("SUBJECTS", {"mine": "Mine"}), form.format("PACKAGE", "'own'")]
    (folder / "one.py").write_text("\n".join(lines))
    (folder / "other.py").write_text("def f():\n    SUBJECTS = PACKAGE = None\n")
    found = {"mine": BuiltIn("p.one:Mine", "own")}
    assert declared(folder, "p") == found
    archive = shutil.make_archive(str(tmp_path / "package"), "zip", folder)
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
    (folder := tmp_path / "p").mkdir()
    file = folder / "mine.py"
    file.write_text(f"import torch\n{line}\n")
    with pytest.raises(SubjectError) as refusal:
        declared(folder, "p")
    expected = f"{file}:2: {name} cannot be read; expected a literal, such as {name} = "
    assert str(refusal.value).startswith(expected)


# The contract of a subject: chosen by a caller, its own, the project's, or plain.


OWN = Capabilities(reduction="mean", features=frozenset({"event"}))


class HasContract(Complete):
    capabilities: ClassVar = OWN


@pytest.mark.parametrize(("name", "asked"), [("plain", False), ("everything", True)])
def test_a_name_replaces_features_alone(name: str, *, asked: bool) -> None:
    chosen = resolve(HasContract, name).capabilities
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
    assert resolve(Complete).capabilities.covers("use", "twice")
    assert resolve(HasContract).capabilities == OWN


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
        resolve(Complete)


@pytest.mark.parametrize("file", [None, "/elsewhere/job.py"])
def test_a_function_of_main_has_a_path_that_a_new_process_finds(
    monkeypatch: pytest.MonkeyPatch, file: str | None
) -> None:
    main = types.ModuleType("__main__")
    exec("def step(rank): ...", vars(main))
    vars(main).update({} if file is None else {"__file__": file})
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert path_of(main.step) == (f"{file}:step" if file else "step")
