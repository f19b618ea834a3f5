"""A package of a checkout by two names: the same modules, and a user's package comes first."""

import importlib
import importlib.util
import pickle
import site
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import syncverify
from syncverify.short_names import aliases

FILES = {
    "toy/__init__.py": """
from syncverify.short_names import stand_in

if __name__ == "toy":
    stand_in(__name__, __file__)

from syncverify.toy.draws import draws
from syncverify.toy.errors import ToyError

__all__ = ["ToyError", "draws"]
""",
    "toy/draws.py": "def draws(): return 'ours'\n",
    "toy/errors.py": "class ToyError(Exception): ...\n",
    "toy/late.py": "class Late: ...\n",
    "toy/room/__init__.py": "from syncverify.toy.room.plan import plan\n",
    "toy/room/plan.py": "def plan(): ...\n",
    "toy/room/broken.py": "raise RuntimeError('broken')\n",
}


def write(root: Path, files: dict[str, str]) -> Path:
    for place, text in files.items():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(text)
    return root


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout with a package `syncverify.toy`, on the path before everything else."""
    root = write(tmp_path / "checkout", FILES)
    (root / "links").mkdir()
    (root / "links" / "toy").symlink_to("../toy")
    path = [*syncverify.__path__, str(root / "links")]
    monkeypatch.setattr(syncverify, "__path__", path)
    monkeypatch.setattr(sys, "path", [str(root), *sys.path])
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    importlib.invalidate_caches()
    yield root
    for name in [*sys.modules]:
        if f"{name}.".startswith(("toy.", "syncverify.toy.")):
            del sys.modules[name]
    vars(syncverify).pop("toy", None)


def make_guest(
    monkeypatch: pytest.MonkeyPatch, checkout: Path, *others: Path, first: Path
) -> None:
    """Put a checkout on the path as an editable install does, between folders of a user."""
    packages = site.getsitepackages()[0]
    entries = [first, packages, checkout, *others]
    monkeypatch.setattr(sys, "path", [*map(str, entries), *sys.path[1:]])


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("order", [1, -1])
def test_both_names_give_the_same_modules(order: int) -> None:
    names = ["toy", "toy.late", "toy.room.plan", "syncverify.toy.errors", "toy.errors"]
    names += ["syncverify.toy.room", "syncverify.toy.late", "toy.draws"]
    for name in names[::order]:
        importlib.import_module(name)
    ours = [name for name in sys.modules if f"{name}.".startswith("toy.")]
    assert len(ours) == 6
    assert [
        n for n in ours if sys.modules[n] is not sys.modules[f"syncverify.{n}"]
    ] == []


@pytest.mark.usefixtures("checkout")
def test_modules_keep_their_names_and_attributes() -> None:
    toy = importlib.import_module("toy")
    importlib.import_module("toy.draws")
    assert toy.__name__ == toy.__spec__.name == "syncverify.toy"
    assert toy.draws() == "ours"  # the function, and not its module
    late = importlib.import_module("toy.late")
    assert toy.late is late
    assert late.__spec__.name == late.Late.__module__ == "syncverify.toy.late"


@pytest.mark.usefixtures("checkout")
def test_names_that_a_room_gives_to_others_stay() -> None:
    """A room that is met by its long name first has given a name of a module away."""
    importlib.import_module("toy")
    room = importlib.import_module("syncverify.toy.room")
    importlib.import_module("toy.room.plan")
    assert callable(room.plan)


@pytest.mark.usefixtures("checkout")
def test_pickles_of_either_name_are_the_same_class() -> None:
    error: Any = importlib.import_module("toy").ToyError
    assert pickle.loads(pickle.dumps(error)) is error
    old = pickle.dumps(error, 0).replace(b"syncverify.toy.errors", b"toy.errors")
    assert pickle.loads(old) is error


@pytest.mark.usefixtures("checkout")
def test_errors_of_imports_are_those_of_python() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'toy\.missing'"):
        importlib.import_module("toy.missing")
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module("toy.room.broken")
    assert importlib.util.find_spec("toy.missing") is None


@pytest.mark.usefixtures("checkout")
def test_reload_finds_the_module() -> None:
    late = importlib.import_module("toy.late")
    assert importlib.reload(late) is late


def test_two_checkouts_are_refused(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write(tmp_path / "other", FILES)
    monkeypatch.setattr(sys, "path", [str(other), *sys.path[1:]])
    with pytest.raises(ImportError, match=r"of one checkout, got .*other.*checkout"):
        importlib.import_module("toy")
    assert checkout


MINE = {"toy/__init__.py": "MINE = True\n", "toy/draws.py": "MINE = True\n"}
FOLDER = {"toy/mine.py": "MINE = True\n"}


def imported(name: str) -> ModuleType:
    importlib.invalidate_caches()
    return importlib.import_module(name)


def test_package_of_a_user_that_comes_earlier_is_left_alone(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = write(tmp_path / "user", MINE)
    monkeypatch.setattr(sys, "path", [str(user), *sys.path])
    ours = imported("syncverify.toy")
    assert imported("toy").MINE
    assert imported("toy.draws").MINE
    assert ours.draws() == "ours"
    assert ours.__file__ == str(checkout / "links" / "toy" / "__init__.py")


@pytest.mark.usefixtures("checkout")
def test_package_of_a_user_after_a_chosen_checkout_is_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = write(tmp_path / "user", MINE)
    monkeypatch.setattr(sys, "path", [*sys.path, str(user)])
    assert imported("toy").__name__ == "syncverify.toy"


@pytest.mark.parametrize("by_hook", [False, True])
def test_installed_checkout_comes_after_every_package_of_a_user(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, by_hook: bool
) -> None:
    user = write(tmp_path / "user", MINE)

    def find_spec(name: str, path: object = None, target: object = None) -> Any:
        is_toy = by_hook and name == "toy"
        return PathFinder.find_spec(name, [str(user)]) if is_toy else None

    sys.meta_path.append(SimpleNamespace(find_spec=find_spec))  # type: ignore[arg-type]
    others = () if by_hook else (user,)
    make_guest(monkeypatch, checkout, *others, first=tmp_path)
    assert imported("toy").MINE
    assert imported("toy.draws").MINE
    assert imported("syncverify.toy").draws() == "ours"


@pytest.mark.parametrize("is_guest", [False, True])
def test_modules_in_a_folder_of_a_user_are_found_beside_ours(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_guest: bool
) -> None:
    user = write(tmp_path / "user", FOLDER)
    if is_guest:
        make_guest(monkeypatch, checkout, first=user)
    else:
        monkeypatch.setattr(sys, "path", [str(user), *sys.path])
    assert imported("toy.mine").MINE
    assert imported("toy").draws() == "ours"


@pytest.mark.parametrize("name", ["draws", "late", "ToyError"])
def test_folder_of_a_user_with_a_name_of_ours_comes_first(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    user = write(tmp_path / "user", {f"toy/{name}.py": "MINE = True\n", **FOLDER})
    monkeypatch.setattr(sys, "path", [str(user), str(checkout), *sys.path[1:]])
    assert imported(f"toy.{name}").MINE
    assert imported("toy.mine").MINE
    assert imported("syncverify.toy").draws() == "ours"


def test_folders_of_the_checkout_are_no_packages_of_a_user(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as `tests/strategies`, where a test runner puts `tests` on the path."""
    write(checkout / "tests", {"toy/draws.py": ""})
    monkeypatch.setattr(sys, "path", [str(checkout / "tests"), *sys.path])
    assert imported("toy").draws() == "ours"


def test_finder_answers_for_its_own_package_only() -> None:
    finder = aliases._ShortNames("toy", [])
    others = ["json", "json.decoder", "toyish.a", "syncverify.toy", "toy", "toy.a.b"]
    found: list[ModuleSpec | None] = [finder.find_spec(name, None) for name in others]
    assert found == [None] * len(others)
