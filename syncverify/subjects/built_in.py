"""The built-in subjects, each declared in its own module.

A module of this folder declares its subjects as literals: `SUBJECTS`, the class of each name, and
`PACKAGE`, the package that they need beside torch. Both are read from the source: the import of a
module fails where its package is missing, with an error that says so.
"""

import ast
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from importlib.metadata import PackageNotFoundError, requires
from importlib.resources.abc import Traversable
from typing import Any, Final

from syncverify.errors import SubjectError

_EXAMPLES: Final = {"SUBJECTS": {"name": "Class"}, "PACKAGE": "package"}
_DISTRIBUTION: Final = "syncverify"
_OF_PEERS: Final = re.compile(r"([\w.-]+).*; *extra *== *['\"]peers['\"]")


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in subject."""

    path: str  # of its class, as `module:name`
    package: str  # name of the distribution that it adapts


def declared(folder: Traversable, package: str) -> dict[str, BuiltIn]:
    """Return the subjects that the modules of a package declare, by name."""
    found = {
        name: BuiltIn(
            f"{package}.{file.name.removesuffix('.py')}:{owner}",
            literals.get("PACKAGE", "torch"),
        )
        for file in folder.iterdir()
        if file.name.endswith(".py")
        for literals in (declarations(file),)
        for name, owner in literals.get("SUBJECTS", {}).items()
    }
    return dict(sorted(found.items()))


def declarations(file: Traversable) -> Mapping[str, Any]:
    """Read `SUBJECTS` and `PACKAGE` of a module; other than literals are a `SubjectError`."""
    source = file.read_text("utf-8")
    if "SUBJECTS" not in source:  # to parse all modules would take long
        return {}
    return {
        name: _value(statement, name, file)
        for statement in ast.parse(source).body
        for name in _assigned(statement) & _EXAMPLES.keys()
    }


def _assigned(statement: ast.stmt) -> set[str]:
    """Return the names of a module that a statement sets, in a branch or a loop as well."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return set()
    names = (each for each in ast.walk(statement) if isinstance(each, ast.Name))
    return {each.id for each in names if isinstance(each.ctx, ast.Store)}


def _value(statement: ast.stmt, name: str, file: Traversable) -> Any:
    example = _EXAMPLES[name]
    match statement:
        case (
            ast.Assign(targets=[ast.Name()], value=written)
            | ast.AnnAssign(value=ast.expr() as written)
        ):
            with suppress(ValueError, TypeError):
                value = ast.literal_eval(written)
                if isinstance(value, type(example)):
                    return value
    raise SubjectError(
        f"{file}:{statement.lineno}: {name} cannot be read; expected a literal, such as "
        f"{name} = {example!r}"
    )


def missing_package(
    package: str, error: ModuleNotFoundError, *, options: str = "--no-deps "
) -> ModuleNotFoundError:
    """Return an error that names what is missing, and how to install it.

    Only for a package of the extra `peers` the error has a command that installs it. Other
    packages may be on no index, or the index may have another package of that name.

    The missing module may be one that the package imports. The requirements of the package itself
    may change torch, so the options of pip leave them out.
    """
    missing = (error.name or package).partition(".")[0].replace("_", "-")
    is_known = package in packages_of_peers()
    if package.startswith(missing):
        how = f"; install it by `pip install {options}{package}`" if is_known else ""
        return ModuleNotFoundError(f"{package} is missing{how}")
    how = f"; install that by `pip install {missing}`" if is_known else ""
    return ModuleNotFoundError(
        f"{package} cannot be imported, since it needs {missing}, which is missing{how}"
    )


def packages_of_peers() -> set[str]:
    """Return the packages of the extra `peers`, which are on the package index."""
    try:
        required = requires(_DISTRIBUTION) or ()
    except PackageNotFoundError:  # a checkout that is not installed
        return set()
    return {found[1] for each in required if (found := _OF_PEERS.match(each))}


BUILT_INS: Final = declared(resources.files(__package__ or ""), __package__ or "")
