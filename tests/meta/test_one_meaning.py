"""A public class or type has one name, and the name has one meaning."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("strategies", "synchronizer", "syncverify")


def sources() -> Iterator[str]:
    """Yield the source of each module that ships, without the entries of the bug bank."""
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            if "bugbank" not in file.parts:
                yield file.read_text()


def public_types(source: str) -> Iterator[str]:
    """Yield the names of public classes and of type aliases of a module."""
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if isinstance(value, ast.Call):  # a variable for types, or an object
                    continue
            case _:
                continue
        if name[0].isupper() and not name.isupper():
            yield name


def shared(modules: Iterable[str]) -> set[str]:
    """Return the names that two modules define."""
    homes = defaultdict[str, int](int)
    for source in modules:
        for name in {*public_types(source)}:
            homes[name] += 1
    return {name for name, count in homes.items() if count > 1}


def test_a_name_that_two_modules_define_is_found() -> None:
    modules = [
        "class Word: ...\nPLACE = 1",
        "Word = str\n_Own = int",
        "PLACE = 2\n_Own = 1",
    ]
    assert shared(modules) == {"Word"}


def test_a_name_means_one_thing() -> None:
    assert shared(sources()) == set(), "rename one of the two"
