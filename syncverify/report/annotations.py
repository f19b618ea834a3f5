"""The violations of a report in a few lines each, for places that show them beside the code.

The place of a violation is a line of the checkout, the folder to which code hosts count the paths
of files. A workflow command of GitHub is one line, `::error file=...,line=...,title=...::message`.
GitHub reads `%0A` as a newline.
"""

import inspect
import itertools
import operator
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from syncverify.report.account import Account
from syncverify.report.console import say
from syncverify.subjects.built_in import BUILT_INS
from syncverify.subjects.subject_options import split_options
from syncverify.trace.source_lines import SourceLine


class FileLine(NamedTuple):
    """A line of a file with an absolute path."""

    file: Path
    number: int


@dataclass(frozen=True, slots=True)
class Annotation:
    """A violation, or another thing that fails a run, beside a line of code."""

    title: str  # `property (cause)`, or a wrong feature
    text: str  # the facts, in one or several lines
    place: FileLine | None = None


def workflow_commands(annotations: Iterable[Annotation]) -> Iterator[str]:
    """Yield a workflow command of GitHub for each annotation."""
    for each in annotations:
        yield workflow_command(f"{each.title}: {each.text}", *(each.place or ()))


# One for each of `REPORT_FORMATS` other than `text`, which adds nothing.
_WRITERS: Final = {
    "github": workflow_commands,
}


def say_annotations(shown_as: str, annotations: Iterable[Annotation]) -> None:
    """Print what a value of `--format` adds to the text."""
    if shown_as in _WRITERS:
        for line in _WRITERS[shown_as](annotations):
            say(line)


def workflow_command(message: str, file: Path | None = None, number: int = 1) -> str:
    """Return the workflow command of one violation; it names no file outside of the checkout."""
    path = path_in_checkout(file) if file is not None else ""
    name = _data(path).replace(":", "%3A").replace(",", "%2C")
    place = f"file={name},line={number}," if path else ""
    return f"::error {place}title=syncverify::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def annotations_of(account: Account) -> Iterator[Annotation]:
    """Yield an annotation for each explanation."""
    for each in account.explanations:
        place = guilty_line(each.lines, account.subject)
        yield Annotation(each.title, each.brief, place)


def checkout() -> Path:
    """Return the root of the checkout around the working directory.

    GitHub names it; else it is the nearest folder with `.git`, or the working directory.
    """
    here = Path.cwd()
    named = os.environ.get("GITHUB_WORKSPACE", "")
    if named and here.is_relative_to(named := str(Path(named).resolve())):
        return Path(named)
    parents = (here, *here.parents)
    return next((each for each in parents if (each / ".git").exists()), here)


def path_in_checkout(file: Path) -> str:
    """Return the path of a file from the root of the checkout; "" for a file of others.

    Installed packages are files of others, also in an environment inside of the checkout.
    """
    root = checkout()
    if not file.is_relative_to(root) or "site-packages" in file.parts:
        return ""
    return file.relative_to(root).as_posix()


def guilty_line(lines: Sequence[SourceLine], subject: str) -> FileLine | None:
    """Return the line to which an explanation of a subject, by its name or path, points.

    It is the first place in the checkout, where the user can change something. The definition
    of the subject comes after the given lines. None where neither is known.
    """
    loaded = {file for _, file in _loaded()}  # in another working directory, maybe
    found = ((_one_of(loaded, line.path), line.number) for line in lines)
    places = [FileLine(file, number) for file, number in found if file]
    # Nothing has to have loaded the file: lines have the ends of paths.
    for line, folder in itertools.product(lines, (Path.cwd(), checkout())):
        if (file := folder / line.path).is_file() and path_in_checkout(file):
            places.append(FileLine(file.resolve(), line.number))
    places += _definition(subject)
    return next(
        (each for each in places if path_in_checkout(each.file)),
        places[0] if places else None,
    )


def _loaded() -> Iterator[tuple[Any, Path]]:
    """Yield the loaded modules, each with its file."""
    for each in [*sys.modules.values()]:
        # A module may be of a class that answers `getattr` by importing something.
        path = vars(each).get("__file__") if hasattr(each, "__dict__") else None
        if isinstance(path, str):
            yield each, Path(path).absolute()


def _one_of(files: set[Path], written: str) -> Path | None:
    """Return the one file whose path ends as written, or None."""
    ends = Path(written).parts
    found = {file.resolve() for file in files if file.parts[-len(ends) :] == ends}
    return found.pop() if len(found) == 1 else None


def _definition(subject: str) -> Iterator[FileLine]:
    """Yield the first line of the class or function that a name or path of a subject means."""
    name, _ = split_options(subject)
    path = BUILT_INS[name].path if name in BUILT_INS else subject
    written, _, attribute = path.partition(":")
    loaded = [*_loaded()]
    is_file = written.endswith(".py")
    file = _one_of({own for _, own in loaded}, written) if is_file else None
    for module, own in loaded:
        if vars(module).get("__name__") != written and own.resolve() != file:
            continue
        try:
            found = operator.attrgetter(attribute)(module)
            number = inspect.getsourcelines(found)[1]
            yield FileLine(Path(inspect.getfile(found)).resolve(), number)
        except (AttributeError, OSError, TypeError):
            return
