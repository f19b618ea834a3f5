"""Marks in pages: a comment names a fact, and the text up to the next one states it.

    The newest release is <!-- newest d9d -->0.24.0<!-- / -->, of ...

`python -m studies.releases --update` fills in each fact, with one exception. `seen d9d` marks a release on
which somebody looked or which was played: the sentence around it need not hold for the next one.
Such a mark is compared with the newest release and never filled in.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_MARK: Final = re.compile(
    r"<!-- (?P<fact>asked|(?:newest|seen|python|pinned|least) [\w-]+) -->"
    r"(?P<text>[^<]*)<!-- / -->"
)
_FENCE: Final = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.DOTALL)
# A row of a table is one sentence; text ends a sentence with a stop and a blank.
_END: Final = re.compile(r"(?<=[.!?])\s|(?<=\|)\n|\n\s*\n|\n(?=[|#-])")
_CLAIM: Final = re.compile(
    r"\b(newest|latest|(on|from) PyPI|current releases?|no release|not (yet )?released|"
    r"(has|have|is|are) no repair)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Problem:
    """A sentence that is not true.

    Attributes:
        line: Line of the page, from 1.
        says: The claim of the page.
        so: The fact that differs, or the remedy.
    """

    line: int
    says: str
    so: str


def marked(fact: str, text: str) -> str:
    """Return a text with the mark of a fact."""
    return f"<!-- {fact} -->{text}<!-- / -->"


def filled(page: str, facts: Mapping[str, str]) -> str:
    """Return a page with the facts of today in its marks."""

    def today(mark: re.Match[str]) -> str:
        fact = mark["fact"]
        return marked(fact, facts.get(fact, mark["text"]))

    return _MARK.sub(today, page)


def problems(page: str, facts: Mapping[str, str]) -> Iterator[Problem]:
    """Yield what a page says of releases and what is not so."""
    for mark in _MARK.finditer(page):
        fact, text = mark["fact"], mark["text"]
        expected = facts.get(fact.replace("seen ", "newest "))
        if text != expected:
            so = "no such fact is known" if expected is None else _so(fact, expected)
            yield Problem(_line(page, mark.start()), f"{fact}: {text}", so)
    yield from _unmarked(page)


def _so(fact: str, expected: str) -> str:
    if fact.startswith("seen "):
        return f"the newest is {expected}: look again, or play it again"
    return f"it is {expected}"


def _unmarked(page: str) -> Iterator[Problem]:
    """Yield each sentence about newest releases that has no mark."""
    text = _FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block.group()), page)
    start = 0
    for end in [*(found.end() for found in _END.finditer(text)), len(text)]:
        sentence = text[start:end]
        without = _COMMENT.sub(lambda found: " " * len(found.group()), sentence)
        claim = _CLAIM.search(without)
        if claim and not _MARK.search(sentence):
            says = f"“{' '.join(without.split())[:100]}”"
            so = "the sentence names no fact: mark the release, as <!-- newest d9d -->"
            yield Problem(_line(page, start + claim.start()), says, so)
        start = end


def _line(page: str, place: int) -> int:
    return page.count("\n", 0, place) + 1
