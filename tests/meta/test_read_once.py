"""Forms that a reader has to read twice, found in the text of sources; tests are left out."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("syncverify", "synchronizer", "strategies", "studies", "examples")

LEANS = re.compile(
    r"^(?!\s*#).*\n\s*# (?:The same|Likewise|As above|It|They)\b", re.MULTILINE
)
CHOICE_IN_LOOP = re.compile(
    r"^ +for [^\n=]+ in [^\n\[({=]*(?:\([^\n]*\))? if [^\n]* else [^\n]*:$",
    re.MULTILINE,
)
OTHER_THAN = re.compile(r"\b(?:an)?other \w+(?: \w+)? than\b")
NOUNLESS = re.compile(
    r"^ *(?:for )?(?:told|said|able)\b(?: =|: (?:list|set|dict)\b.* =| in )",
    re.MULTILINE,
)
WHETHER = re.compile(r'-> bool:\n +"""Whether\b')


def matches(pattern: re.Pattern[str]) -> Callable[[str], Iterator[int]]:
    """Return a function that yields the place of each match in a text."""
    return lambda text: (match.start() for match in pattern.finditer(text))


RULES = {
    "say 'different from'": matches(OTHER_THAN),
    "name the subject of the comment": matches(LEANS),
    "choose before the loop": matches(CHOICE_IN_LOOP),
    "give the noun, not `told`, `said` or `able`": matches(NOUNLESS),
    "'Tell whether', not 'Whether'": matches(WHETHER),
}
PLANTED = {
    "say 'different from'": "# another stream than this one\n",
    "name the subject of the comment": "x = 1\n# The same for y.\n",
    "choose before the loop": "    for each in found if is_right else ():\n",
    "give the noun, not `told`, `said` or `able`": "    told = 1\n",
    "'Tell whether', not 'Whether'": 'def f() -> bool:\n    """Whether it is."""\n',
}


@pytest.mark.parametrize("rule", RULES)
def test_sources_are_read_once(rule: str) -> None:
    files = (file for name in FOLDERS for file in (ROOT / name).rglob("*.py"))
    found = [
        f"{file.relative_to(ROOT)}:{text.count(chr(10), 0, place) + 1}: {rule}"
        for file in files
        if not file.is_relative_to(ROOT / "syncverify" / "synchronizer")
        if not file.is_relative_to(ROOT / "syncverify" / "strategies")
        for text in [file.read_text("utf-8")]
        for place in RULES[rule](text)
    ]
    assert found == []


@pytest.mark.parametrize("rule", RULES)
def test_planted_mistake_is_found(rule: str) -> None:
    broken = {name for name, find in RULES.items() if [*find(PLANTED[rule])]}
    assert broken == {rule}
