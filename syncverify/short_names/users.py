"""A user's own package that has one of our short names.

Python takes the first package of a name on the path, and so a user's in most places. Two are
left. Python prefers ours to a folder without `__init__.py` that comes earlier. And an editable
install puts our checkout on the path by a `.pth` file, which may come before those of other
editable projects, and always comes before their import hooks. So a checkout that is there as an
installed one is the last choice.
"""

from __future__ import annotations

import pkgutil
import site
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType


def package_of_user(short: str, file: str) -> ModuleSpec | None:
    """Find the package that a short name means if it does not mean ours.

    Args:
        short: The name that is being imported.
        file: Our `__init__.py`.

    Returns:
        The package, without an origin if it is a folder without `__init__.py`.
    """
    checkout = Path(file).resolve().parents[1]
    entries = [each for each in sys.path if Path(each).resolve() != checkout]
    installed = {*site.getsitepackages(), site.getusersitepackages()}
    earlier = _before(checkout)
    if installed.isdisjoint(earlier):  # a person put the checkout there
        return _elsewhere(PathFinder.find_spec(short, earlier), checkout)
    found = [PathFinder.find_spec(short, entries)]
    hooks = [each for each in sys.meta_path if each is not PathFinder]
    found += [each.find_spec(short, None) for each in hooks]
    return next((each for each in found if _elsewhere(each, checkout)), None)


def _before(checkout: Path) -> list[str]:
    """Return the entries of the path that come before a folder."""
    for number, entry in enumerate(sys.path):
        if Path(entry).resolve() == checkout:
            return sys.path[:number]
    return [*sys.path]


def _elsewhere(found: ModuleSpec | None, checkout: Path) -> ModuleSpec | None:
    """Return a package unless it lies in our checkout, as ours and our tests of it do."""
    if found is None:
        return None
    places = [found.origin] if found.origin else found.submodule_search_locations or []
    is_ours = all(Path(each).resolve().is_relative_to(checkout) for each in places)
    return None if is_ours else found


def is_in_the_way(own: ModuleType, users: ModuleSpec) -> bool:
    """Tell whether a folder without `__init__.py` has a module of a name that we have."""
    names = {each.name for each in pkgutil.iter_modules(own.__path__)}
    theirs = pkgutil.iter_modules(users.submodule_search_locations)
    return not names.union(own.__all__).isdisjoint(each.name for each in theirs)


def load(users: ModuleSpec) -> None:
    """Import a package of a user in the place of the one that is being imported."""
    module = sys.modules[users.name] = module_from_spec(users)
    if users.origin is not None and users.loader is not None:
        users.loader.exec_module(module)
    else:
        # Python sets None, and `inspect` knows the file of ours by this name already.
        vars(module).pop("__file__", None)
