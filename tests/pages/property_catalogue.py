"""Write the catalogue of properties from the code: `make catalogue`.

The docstring of a property has, in this order: the statement, details, `Catches: ...`, and a
sentence about its limits. The planted defects provide the example that violates it.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from studies.documents import Document, table
from syncverify.judge.properties import ALL_PROPERTIES
from syncverify.judge.properties.judgement import Needs, Property
from syncverify.judge.properties.registry import OF_TRAININGS
from tests.quality.planted.witnesses import witnesses

_LIMITS = re.compile(r"\b(?:Does not|Says nothing|Knows by name)")


def catalogue() -> str:
    """Return the entries of the page."""
    return "\n".join(
        "\n".join(_entry(each)) for each in (*ALL_PROPERTIES, *OF_TRAININGS)
    )


class DocstringParts(NamedTuple):
    """The parts of a property's docstring that the page shows."""

    details: str
    caught: str
    limits: str


def parts(entry: Property) -> DocstringParts:
    """Cut the docstring of a property into its parts."""
    text = (inspect.getdoc(entry.check) or "").partition("\n")[2].strip()
    details, _, rest = text.partition("Catches: ")
    found = _LIMITS.search(rest)
    caught, limits = (rest, "") if found is None else _cut(rest, found.start())
    return DocstringParts(_one_line(details), _one_line(caught), _one_line(limits))


def _entry(entry: Property) -> Iterator[str]:
    details, caught, limits = parts(entry)
    yield f"## `{entry.name}`\n"
    yield f"{entry.statement}\n"
    if details:
        yield f"{details}\n"
    data = " Needs data." if entry.needs_data else ""
    if entry.needs is Needs.VALUES:
        data = ""
    yield f"- **Applies:** {entry.condition[0].lower()}{entry.condition[1:]}{data}"
    yield f"- **Catches:** {caught}"
    yield f"- **Leaves open:** {limits}"
    if shown := witnesses().get(entry.name):
        yield f"- **Shown by:** {_named(shown[0])}; silent on {_named(shown[1])}"
    yield ""


def _cut(text: str, place: int) -> tuple[str, str]:
    return text[:place], text[place:]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _named(subject: type) -> str:
    return f"`{subject.__module__}:{subject.__qualname__}`"


def examples() -> str:
    """Return the table of docs/properties.md."""
    rows = (
        (f"`{each.name}`", each.example) for each in (*ALL_PROPERTIES, *OF_TRAININGS)
    )
    return "\n".join(table(("property", "one of the bugs it catches"), rows))


PAGE: Final = Document("docs/reference/properties.md", catalogue, "properties")
PART: Final = Document("docs/properties.md", examples, "properties")
