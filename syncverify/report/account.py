"""What a face reports, as one value: its explanations and its verdict; and their text and JSON."""

import builtins
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from syncverify.judge.violation import Violation
from syncverify.plain_text import counted
from syncverify.report.console import json_numbers
from syncverify.trace.source_lines import SourceLine

SCHEMA: Final = 3  # of the JSON of all faces
# Fields of an explanation that are no keys of its JSON.
_NO_KEYS: Final = frozenset({"statement", "sections", "lines", "facts"})
MAX_LINES: Final = 60  # of an explanation: longer lists end in "... and N more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One thing that is wrong: what, why, how to mend it, and how to see it again."""

    property: str
    cause: str
    statement: str  # what the property promises
    summary: str
    ranks: Sequence[int] = ()
    parameters: Sequence[str] = ()
    hint: str = ""
    token: str = ""
    replay: str = ""  # the command; "" where no command finds the program
    # Of the text, between summary and hint: single lines, and lists that may be cut.
    sections: Sequence[list[str] | str] = ()
    lines: Sequence[SourceLine] = ()  # of the user's code, the guilty one first
    facts: Mapping[str, Any] = field(default_factory=dict)  # more keys of JSON

    @classmethod
    def of(
        cls, violation: Violation, statements: Mapping[str, str], **others: Any
    ) -> Self:
        """Return the explanation of a violation; `others` are more fields."""
        return cls(
            property=violation.property,
            cause=violation.cause,
            statement=statements[violation.property],
            ranks=violation.ranks,
            parameters=violation.parameters,
            lines=violation.evidence.lines,
            **{"summary": violation.summary, **others},
        )

    @builtins.property
    def title(self) -> str:
        """The property and the cause."""
        return f"{self.property} ({self.cause})"

    @builtins.property
    def brief(self) -> str:
        """The summary, the hint and the command, each on a line of its own."""
        more = {"hint": self.hint, "replay": self.replay}
        lines = [f"{name}: {text}" for name, text in more.items() if text]
        return "\n".join([self.summary, *lines])

    def text(self, number: str = "") -> str:
        """Return the whole explanation, below its title and maybe a number."""
        head = [f"VIOLATION{number}: {self.title}", f"  {self.statement}", ""]
        summary = textwrap.indent(self.summary, "  ")
        hint = titled("hint:", [self.hint] if self.hint else [])
        replay = titled("replay:", [self.replay] if self.replay else [])
        return "\n".join(fitted([*head, summary, *self.sections, *hint, *replay]))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        names = (each.name for each in fields(self) if each.name not in _NO_KEYS)
        own = {name: getattr(self, name) for name in names}
        values: dict[str, Any] = json_numbers({**own, **self.facts})
        return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What a face reports of a result."""

    subject: str  # name or path of what was played
    verdict: str  # in one line
    is_right: bool | None  # None where too little was judged to say it
    explanations: Sequence[Explanation] = ()
    remarks: Sequence[str] = ()
    notes: Sequence[str] = ()  # blocks of the text, before the verdict
    facts: Mapping[str, Any] = field(default_factory=dict)  # more keys of JSON

    @property
    def scalars(self) -> dict[str, int | float | str]:
        """The facts that a page lists: numbers and texts."""
        facts = {**self.facts, "violations": len(self.explanations)}
        scalars = {int, float, str}
        return {key: e for key, e in facts.items() if e != "" and type(e) in scalars}

    def text(self) -> str:
        """Return the report as text: each explanation, remarks, notes and the verdict."""
        found = self.explanations
        of = f" {{}} of {len(found)}" if len(found) > 1 else ""
        blocks = [e.text(of.format(number)) for number, e in enumerate(found, start=1)]
        remarks = "\n".join(f"REMARK: {each}" for each in self.remarks)
        listed = [*blocks, remarks, *self.notes, self.verdict]
        return "\n\n".join(each for each in listed if each)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; the format is versioned."""
        return {
            "schema": SCHEMA,
            "subject": self.subject,
            "verdict": self.verdict,
            "right": self.is_right,
            **json_numbers(self.facts),
            "remarks": [*self.remarks],
            "violations": [each.to_json() for each in self.explanations],
        }


def count_of_violations(number: int) -> str:
    """Return the first words of a verdict."""
    return counted(number, "VIOLATION").upper() if number else "NO VIOLATION"


def titled(title: str, items: Iterable[object], about: str = "") -> list[str]:
    """Return items below each other, the title before the first one; none without items."""
    texts = [*map(str, items)]
    texts += [f"({about})"] if texts and about else []
    return [f"  {'' if at else title:<11} {text}" for at, text in enumerate(texts)]


def fitted(
    sections: Sequence[list[str] | str], num_lines: int = MAX_LINES
) -> list[str]:
    """Return lines and lists of lines, joined; the longest lists are cut until all of it fits.

    Single lines are never cut, and each list keeps its first two lines, so that many lists may
    still be longer than `num_lines`.
    """
    lengths = [len(each) for each in sections if isinstance(each, list)]
    room = num_lines - (len(sections) - len(lengths))
    limit = max(lengths, default=0)
    while limit > 3 and sum(min(length, limit) for length in lengths) > room:
        limit -= 1
    lines = list[str]()
    for section in sections:
        lines += [section] if isinstance(section, str) else _cut(section, limit)
    return lines


def _cut(lines: list[str], limit: int) -> list[str]:
    if len(lines) <= limit:
        return lines
    indent = " " * (len(lines[-1]) - len(lines[-1].lstrip()))
    return [*lines[: limit - 1], f"{indent}... and {len(lines) - limit + 1} more"]
