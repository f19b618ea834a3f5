"""The source line to which a violation points, as a file and a number."""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncverify.judge.violation import Violation
from syncverify.report.checkout import checkout, path_in_checkout
from syncverify.subjects.built_in import BUILT_INS
from syncverify.subjects.subject_options import split_options


@dataclass(frozen=True, slots=True)
class FileLine:
    """A line of a file.

    Attributes:
        file: Absolute path.
    """

    file: Path
    number: int

    @property
    def path(self) -> str:
        """Path of the file, relative where it lies below the working directory."""
        if self.file.is_relative_to(Path.cwd()):
            return self.file.relative_to(Path.cwd()).as_posix()
        return self.file.as_posix()


def guilty_line(violation: Violation, subject: str) -> FileLine | None:
    """Find the line of a subject to which a violation points.

    Args:
        violation: The violation, whose evidence has lines.
        subject: Name or path of the subject.

    Returns:
        The first place in the checkout, where the user can change something. The definition
        of the subject comes after the lines of the evidence. None where neither is known.
    """
    places = [*_lines(violation), *_definition(subject)]
    return next(
        (each for each in places if path_in_checkout(each.file)),
        places[0] if places else None,
    )


def place_in_checkout(violation: Violation) -> FileLine | None:
    """Find the first line of a file in the checkout that a violation names, without imports.

    Args:
        violation: The violation of a job, whose lines have the ends of paths.

    Returns:
        The line; None where no file of the checkout has such a path from its root or from
        the working directory.
    """
    for line in violation.evidence.lines:
        for folder in (Path.cwd(), checkout()):
            if (file := folder / line.path).is_file() and path_in_checkout(file):
                return FileLine(file.resolve(), line.number)
    return None


def _lines(violation: Violation) -> Iterator[FileLine]:
    """Yield the lines of the evidence; the working directory may be another one by now."""
    files = _loaded_files()
    for line in violation.evidence.lines:
        if file := _one_of(files, line.path):
            yield FileLine(file, line.number)


def _loaded_files() -> set[Path]:
    """Return the files of all loaded modules."""
    # A module may be of a class that answers `getattr` by importing something.
    paths = {vars(each).get("__file__") for each in _modules()}
    return {Path(path).absolute() for path in paths if isinstance(path, str)}


def _one_of(files: set[Path], written: str) -> Path | None:
    """Return the one file whose path ends as written, or None."""
    ends = Path(written).parts
    found = {file.resolve() for file in files if file.parts[-len(ends) :] == ends}
    return found.pop() if len(found) == 1 else None


def _modules() -> Iterator[Any]:
    return (each for each in [*sys.modules.values()] if hasattr(each, "__dict__"))


def _resolved(path: object) -> Path | None:
    return Path(path).resolve() if isinstance(path, str) else None


def _definition(subject: str) -> Iterator[FileLine]:
    """Yield the first line of the class or function that a name or path of a subject means."""
    name, _ = split_options(subject)
    path = BUILT_INS[name].path if name in BUILT_INS else subject
    written, _, attribute = path.partition(":")
    file = _one_of(_loaded_files(), written) if written.endswith(".py") else None
    for module in _modules():
        own, own_name = vars(module).get("__file__"), vars(module).get("__name__")
        if own_name != written and (file is None or _resolved(own) != file):
            continue
        try:
            found = operator.attrgetter(attribute)(module)
            number = inspect.getsourcelines(found)[1]
            yield FileLine(Path(inspect.getfile(found)).resolve(), number)
        except (AttributeError, OSError, TypeError):
            return
