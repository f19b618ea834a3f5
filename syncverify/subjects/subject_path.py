"""Paths of objects, such as subjects: `module:attribute` or `file.py:attribute`."""

import ast
import difflib
import functools
import importlib
import sys
import sysconfig
import traceback
from contextlib import chdir
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from syncverify.errors import SubjectError
from syncverify.import_path import find_modules_in
from syncverify.plain_text import kind_of, message_of

_INSTALLED = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))


def path_of(found: object) -> str:
    """Return a path by which a command of this folder finds an object.

    The path is that of a file where the file lies below this folder: a test module may not
    be importable by name. An object that is made inside a function has a name, and no path.
    """
    if isinstance(found, functools.partial):
        return f"functools.partial({path_of(found.func)})"
    path = module_path_of(found)
    if path is None:
        return getattr(found, "__qualname__", type(found).__qualname__)
    module_name, _, attribute = path.partition(":")
    file = Path(getattr(sys.modules.get(module_name), "__file__", None) or "").resolve()
    here = Path.cwd()
    is_main = module_name == "__main__"  # another one in a new process
    if file.suffix != ".py":  # such as a notebook
        return attribute if is_main else path
    if "site-packages" in file.parts or not file.is_relative_to(here):
        return f"{file}:{attribute}" if is_main else path
    return f"{file.relative_to(here)}:{attribute}"


def classes_in(file: Path) -> list[str]:
    """Return the names of the classes in a file, without an import; none if it is no module."""
    try:
        statements = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    return [each.name for each in statements if isinstance(each, ast.ClassDef)]


def module_path_of(found: object) -> str | None:
    """Return `module:attribute` of a class or function, or None if it has no such path."""
    module = getattr(found, "__module__", None)
    name = getattr(found, "__qualname__", "")
    if not module or not name or "<" in name:  # as in `<locals>` and `<lambda>`
        return None
    return f"{module}:{name}"


def imported(path: str, noun: str) -> Any:
    """Import a subject or a layer by its path, `module:attribute` or `file.py:attribute`.

    Raises:
        SubjectError: The import fails; `noun` is for its text.
        KeyboardInterrupt: The user interrupted the import.
    """
    written, _, attribute = path.partition(":")
    # As `python script.py` would find it: the user's module may lie in this folder.
    find_modules_in(Path.cwd())
    try:
        with chdir(Path.cwd()):  # all paths of a command are meant from here
            found = _module(written)
            # Without a part, the module itself is found.
            for part in filter(None, attribute.split(".")):
                found = getattr(found, part)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # a script may exit, in its own way
        words = f"{kind_of(error)}: {message_of(error)}"
        own = _without_imports(error.__traceback__)
        raise SubjectError(
            f"{noun} {path!r} cannot be imported: {words}{_place(own)}{_near(error)}"
        ) from error.with_traceback(own)
    return found


def _near(error: BaseException) -> str:
    """Name what a user may have meant by an attribute that is not there."""
    match error:
        case AttributeError(obj=ModuleType() | type() as owner):
            near = difflib.get_close_matches(error.name or "", dir(owner), n=1)
            return f"; did you mean {near[0]!r}?" if near else ""
    return ""


def _without_imports(lines: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the first line that is neither ours nor the import system's."""
    while lines is not None and _imports(lines.tb_frame.f_code.co_filename):
        lines = lines.tb_next
    return lines


def _imports(filename: str) -> bool:
    return filename.startswith("<frozen") or filename in (__file__, importlib.__file__)


def _place(lines: TracebackType | None) -> str:
    """Name the innermost line of the user's own files, or of all files, in a traceback."""
    files = [(each.filename, each.lineno) for each in traceback.extract_tb(lines)]
    files = [each for each in files if not _imports(each[0])]
    own = [each for each in files if not each[0].startswith(_INSTALLED)]
    if not files:
        return ""
    (name, line), here = (own or files)[-1], Path.cwd()
    path = Path(name)
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f", at {shown}:{line}"


def _module(written: str) -> Any:
    """Import a module by its name, or by the path of its file; raise `ImportError` for others."""
    file = Path(written).resolve()
    if not written.endswith(".py"):
        return importlib.import_module(written)
    if not file.is_file():
        raise ImportError(f"there is no file {written}")
    names, folder = [file.stem], file.parent
    while (folder / "__init__.py").exists():
        names.insert(0, folder.name)
        folder = folder.parent
    find_modules_in(folder)
    found = importlib.import_module(".".join(names))
    if Path(found.__file__ or "").resolve() != file:
        raise ImportError(f"{found.__name__} is {found.__file__}; rename the file")
    return found
