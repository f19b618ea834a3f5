"""The same module by its short and by its long name."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from typing_extensions import override

from syncverify.short_names.users import is_in_the_way, load, package_of_user

_ROOT = __name__.partition(".")[0]


def stand_in(short: str, file: str) -> None:
    """Put the package that a short name means into `sys.modules`.

    Args:
        short: The name that is being imported, such as `strategies`.
        file: The `__init__.py` that runs under this name.

    Raises:
        ImportError: The file is of another checkout than `syncverify` is.
    """
    users = package_of_user(short, file)
    if users is not None and users.origin is not None:
        load(users)
        return
    own = importlib.import_module(f"{_ROOT}.{short}")
    if users is not None and is_in_the_way(own, users):
        load(users)
        return
    if not Path(own.__file__ or "").samefile(file):
        raise ImportError(
            f"expected {short!r} and {_ROOT!r} of one checkout, got {file} and "
            f"{own.__file__}; put one checkout on the path, or import {own.__name__!r}"
        )
    folders = () if users is None else users.submodule_search_locations or ()
    # Before Python's own finders, which would load the same files a second time.
    sys.meta_path.insert(0, _ShortNames(short, [*folders]))
    _name(short, own)


def _name(short: str, own: ModuleType) -> None:
    """Give short names to a package and to those of its modules that are loaded.

    All at once: Python makes a module that it finds later an attribute of its package, and in
    the place of `strategies.scenarios` there is a function by now.
    """
    for name, module in [*sys.modules.items()]:
        if f"{name}.".startswith(f"{own.__name__}."):
            sys.modules[short + name.removeprefix(own.__name__)] = module


class _ShortNames(MetaPathFinder, Loader):
    """Finds `synchronizer.bucket` as `syncverify.synchronizer.bucket`.

    Attributes:
        short: The short name of the package.
        folders: Folders of a user with this name and without `__init__.py`. Their modules have
            other names than ours.
    """

    def __init__(self, short: str, folders: list[str]) -> None:
        self.short = short
        self.folders = folders

    @override
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        above = fullname.rpartition(".")[0]
        package = sys.modules.get(above)
        # A module of a user has the name by which it was imported.
        is_below = f"{above}.".startswith(f"{self.short}.")
        if not is_below or package is None or package.__name__ != f"{_ROOT}.{above}":
            return None
        if importlib.util.find_spec(f"{_ROOT}.{fullname}") is not None:
            return ModuleSpec(fullname, self)
        return PathFinder.find_spec(fullname, self.folders)

    @override
    def exec_module(self, module: ModuleType) -> None:
        """Put our module in the place of the new one, which stays empty."""
        short = module.__name__
        _name(short, importlib.import_module(f"{_ROOT}.{short}"))
