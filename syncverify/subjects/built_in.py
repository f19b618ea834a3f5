"""The built-in subjects, each declared in its own module.

A module of this folder declares its subjects as literals: `SUBJECTS`, the class of each name, and
`PACKAGE`, the package that they need beside torch. Both are read from the source: the import of a
module fails where its package is missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A built-in subject.

    Attributes:
        path: Its class, as `module:name`.
        package: Name on the package index of what it adapts.
    """

    path: str
    package: str


def declared(folder: Path, package: str) -> dict[str, BuiltIn]:
    """Return the subjects that the modules of a package declare, by name."""
    found = {
        name: BuiltIn(
            f"{package}.{file.stem}:{owner}", literals.get("PACKAGE", "torch")
        )
        for file in folder.glob("*.py")
        if (literals := dict(_literals(file.read_text("utf-8"))))
        for name, owner in literals["SUBJECTS"].items()
    }
    return dict(sorted(found.items()))


def _literals(source: str) -> Iterator[tuple[str, Any]]:
    if "\nSUBJECTS" not in source:  # to parse all modules would take long
        return
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=("SUBJECTS" | "PACKAGE") as name)]):
                yield name, ast.literal_eval(node.value)


BUILT_INS: Final = declared(Path(__file__).parent, __package__ or "")
