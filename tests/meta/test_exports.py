"""Every name that a package promises can be imported from it."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import syncverify

ROOT = Path(__file__).parents[2]
# Names, and the folders in which they lie; links in `syncverify/` lead there.
PACKAGES = {
    "syncverify": ROOT / "syncverify",
    "syncverify.strategies": ROOT / "strategies",
    "syncverify.synchronizer": ROOT / "synchronizer",
}
MODULES = sorted(
    ".".join((name, *file.relative_to(folder).parent.parts))
    for name, folder in PACKAGES.items()
    for file in folder.rglob("__init__.py")
)


def broken_exports(module: ModuleType) -> list[str]:
    names = list(getattr(module, "__all__", []))
    missing = [name for name in names if not hasattr(module, name)]
    doubled = [name for name in {*names} if names.count(name) > 1]
    private = [n for n in names if n.startswith("_") and not n.endswith("__")]
    return missing + doubled + private


@pytest.mark.parametrize("name", MODULES)
def test_exported_names_exist(name: str) -> None:
    assert broken_exports(import_module(name)) == []


def test_no_public_name_is_a_folder() -> None:
    """An import of the folder would put it in the place of the name."""
    folders = {file.parent.name for file in (ROOT / "syncverify").glob("*/__init__.py")}
    assert {*syncverify.__all__} & folders == set()


@pytest.mark.parametrize("names", [["absent"], ["x", "x"], ["_y"]])
def test_planted_mistake_is_found(names: list[str]) -> None:
    module = ModuleType("toy")
    vars(module).update(x=1, _y=2, __all__=names)
    assert broken_exports(module) == names[:1]
