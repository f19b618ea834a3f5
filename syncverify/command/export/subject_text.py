"""The subject as text of a script: the lines that import it, or its source."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from syncverify.command.export.embedding import EmbeddedSource, embedded
from syncverify.errors import UsageError
from syncverify.subjects.subject import BUILT_IN_SUBJECTS, Subject
from syncverify.subjects.subject_options import split_options
from syncverify.subjects.subject_path import module_path_of

# Adapters of the harness, which a script without the harness cannot import.
_ADAPTERS = "syncverify.subjects"


@dataclass(frozen=True, slots=True)
class SubjectText:
    """The subject in a script.

    Attributes:
        expression: Expression that names the class or factory.
        search_path: Lines that let Python find the module; empty where Python does anyway.
        imports: Lines that import it.
        source: Its definition, where it is an adapter of the harness.
    """

    expression: str
    search_path: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    source: EmbeddedSource = field(default_factory=EmbeddedSource)


def subject_text(subject: Subject, folder: Path) -> SubjectText:
    """Return the text of a subject for a script in a folder.

    Raises:
        UsageError: No line can import the subject.
    """
    path = module_path_of(subject.factory)
    if path is None:
        path = BUILT_IN_SUBJECTS.get(subject.name, subject.name)
    module, _, attribute = path.partition(":")
    if module.endswith(".py") or not attribute:
        raise UsageError(
            f"subject {subject.name!r} has no name that a script could import: expected a "
            "class or function of a module"
        )
    if module.rpartition(".")[0] == _ADAPTERS:
        return SubjectText(attribute, source=_with_options(subject, attribute))
    first = attribute.partition(".")[0]
    imports = (f"from {module} import {first}",)
    return SubjectText(attribute, tuple(_search_path(module, folder)), imports)


def _with_options(subject: Subject, attribute: str) -> EmbeddedSource:
    """Return the source of an adapter, and a line that sets the options behind its name."""
    source = embedded([subject.factory])
    if split_options(subject.name)[1]:
        options = getattr(subject.factory, "options", {})
        source.definitions["options"] = f"{attribute}.options = {options!r}"
    return source


def _search_path(module: str, folder: Path) -> list[str]:
    """Return lines that let Python find a module that is not installed."""
    # Not resolved: a folder of the package may be a link.
    file = Path(getattr(sys.modules[module], "__file__", None) or "").absolute()
    depth = module.count(".") + (file.name == "__init__.py")
    root = file.parents[depth].resolve()
    is_installed = {"site-packages", "dist-packages"} & {*file.parts}
    if is_installed or root == folder.resolve():
        return []
    relative = os.path.relpath(root, folder.resolve())
    return [f"sys.path.insert(0, str(Path(__file__).resolve().parent / {relative!r}))"]
