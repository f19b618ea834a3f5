"""Pronoun words in docstrings, comments and pages.

A pronoun such as "whoever" or "what" stands where the name of a thing could stand, and the
reader has to find the thing. A few are good English; many are a dialect.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_PER_THOUSAND = 5.0
# Comments at a stream edge answer two questions: what overlaps, what orders it.
_PRONOUNS = re.compile(
    r"\b(what(?! overlaps| orders)|who|whom|whoever|whose|whatever|nobody|somebody|anybody"
    r"|of its own|of their own|as ever|likewise)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z']+")
_CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Count:
    """Words of one kind of prose below one folder, and pronoun words among them."""

    place: str
    num_words: int
    num_pronouns: int

    @property
    def per_thousand(self) -> float:
        """Return the pronoun words per 1,000 words; 0 where there are no words."""
        return 1000 * self.num_pronouns / max(self.num_words, 1)

    @property
    def is_plain(self) -> bool:
        """Tell whether the share of pronoun words is within the limit."""
        return self.per_thousand <= MOST_PER_THOUSAND


def count(place: str, texts: Iterator[str]) -> Count:
    """Return the count of docstrings, comments or pages below the folder `place`."""
    num_words = num_pronouns = 0
    for text in texts:
        num_words += len(_WORD.findall(text))
        num_pronouns += len(_PRONOUNS.findall(text))
    return Count(place, num_words, num_pronouns)


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
