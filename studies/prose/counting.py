"""Words and sentences in docstrings, comments and pages that a reader has to read twice.

| rule | example | better |
|---|---|---|
| pronoun words | whoever reads it | the rank that reads it |
| dialect | the subject is told; gradients are owed | the subject sees; expected gradients |
| long sentences | five facts in one sentence | a list |
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

LONGEST_SENTENCE = 40
# Comments at a stream edge answer two questions: what overlaps, what orders it.
_PRONOUNS = re.compile(
    r"\b(what(?! overlaps| orders)|who|whom|whoever|whose|whatever|nobody|somebody|anybody"
    r"|of its own|of their own|as ever|likewise)\b",
    re.IGNORECASE,
)
_DIALECT = re.compile(
    r"\b((is|are|was|were|be|been) (told|asked)|told by|asked for|owe[sd]?)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z']+")
_LINK = re.compile(r"\]\([^)]*\)")
_CODE = re.compile(r"`[^`\n]*`")
_CODE_BLOCK = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
# Paragraphs, items of a list, rows and cells of tables.
_PART = re.compile(
    r"\n\s*\n|\n\s*(?:[*-]|\d+\.)\s|\n(?=[|#=])|\||(?<=\S) {2,}(?=\S)|:\n"
)
_END = re.compile(r"(?<=[.!?:])\s+")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of place that is read twice, and how many of them prose may have.

    Attributes:
        name: The rule, in words.
        remedy: What to write instead.
        most: Places per 1,000 words, at most.
        found: Returns the number of places in a text.
    """

    name: str
    remedy: str
    most: float
    found: Callable[[str], int]


def _long_sentences(text: str) -> int:
    plain = _CODE.sub("x", _LINK.sub("]", text))
    sentences = (end for part in _PART.split(plain) for end in _END.split(part))
    return sum(len(_WORD.findall(each)) > LONGEST_SENTENCE for each in sentences)


RULES = (
    Rule("pronoun words", "name the thing", 5.0, lambda t: len(_PRONOUNS.findall(t))),
    Rule("dialect", "say who does what", 0.3, lambda t: len(_DIALECT.findall(t))),
    Rule("long sentences", "make a list", 0.1, _long_sentences),
)


@dataclass(frozen=True, slots=True)
class Count:
    """The count of one kind of prose below one folder.

    Attributes:
        place: Folder and kind of prose.
        num_words: Number of words.
        found: Number of places of each rule.
    """

    place: str
    num_words: int
    found: tuple[int, ...]

    def per_thousand(self, rule: Rule) -> float:
        """Return the places of a rule per 1,000 words; 0 where there are no words."""
        return 1000 * self.found[RULES.index(rule)] / max(self.num_words, 1)

    def broken(self) -> list[Rule]:
        """List the rules that have more places than they may have."""
        return [rule for rule in RULES if self.per_thousand(rule) > rule.most]


def count(place: str, texts: Iterable[str]) -> Count:
    """Return the count of docstrings, comments or pages; `place` says where they are."""
    listed = [*texts]
    num_words = sum(len(_WORD.findall(text)) for text in listed)
    found = tuple(sum(map(rule.found, listed)) for rule in RULES)
    return Count(place, num_words, found)


def docstrings(folder: Path) -> Iterator[str]:
    """Yield each docstring of the Python files below a folder."""
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, _DOCUMENTED):
                yield ast.get_docstring(node) or ""


def comments(folder: Path) -> Iterator[str]:
    """Yield each comment of the Python files below a folder."""
    for file in sorted(folder.rglob("*.py")):
        reader = io.StringIO(file.read_text("utf-8")).readline
        for token in tokenize.generate_tokens(reader):
            if token.type == tokenize.COMMENT:
                yield token.string


def pages(folder: Path) -> Iterator[str]:
    """Yield each Markdown page below a folder, without its code blocks."""
    for file in sorted(folder.rglob("*.md")):
        yield _CODE_BLOCK.sub("", file.read_text("utf-8"))


def front_pages(folder: Path) -> Iterator[str]:
    """Yield each Markdown page in a folder but the changelog, without its code blocks."""
    for file in sorted(folder.glob("*.md")):
        if file.name != "CHANGELOG.md":
            yield _CODE_BLOCK.sub("", file.read_text("utf-8"))
