"""The import path of this process, and of the processes that it starts.

Note [Every process imports this package]
    A command puts the user's folder in front of `sys.path`, as `python script.py` does. That
    folder may hold a `syncverify/` of its own: a checkout does, beside an installed package. Two
    copies have two classes of each name, which pickle refuses. So a started process imports this
    package, from where this process has it, and its other modules, before it sees a folder of
    the user. A submodule comes from the `__path__` of its package, whatever `sys.path` is then.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

# The folder, or the zip file, from which this process imports the package.
PACKAGE_FOLDER: Final = str(Path(__file__).absolute().parents[1])
# Folders of the user that `find_modules_in` has put into `sys.path`.
_user_folders = set[str]()
# The first argument is the name of a module, as with `python -m`.
_BEGIN: Final = """
import sys
sys.path[:] = {path!r}
import syncverify
del sys.path[0]
import importlib
importlib.import_module(sys.argv.pop(1)).main()
"""


def find_modules_in(folder: Path) -> None:
    """Let Python find the user's modules in a folder before those of other folders."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
        _user_folders.add(str(folder))


def user_folders() -> frozenset[str]:
    """Return the folders of `sys.path` that are there for the user's modules alone."""
    return frozenset(_user_folders)


def import_path() -> list[str]:
    """Return `sys.path` for a process with any working directory."""
    return [path or str(Path.cwd()) for path in sys.path]


def take_over(path: Iterable[str], folders: Iterable[str]) -> None:
    """Import from a path of another process, with its folders of the user."""
    sys.path[:] = path
    _user_folders.clear()
    _user_folders.update(folders)


def beginning() -> str:
    """Return code for `python -c` that imports this package, and runs `main` of a module."""
    path = [each for each in import_path() if each not in _user_folders]
    return _BEGIN.format(path=[PACKAGE_FOLDER, *path])
