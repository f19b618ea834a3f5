"""The page as text: hostile words stay words."""

import json
import math
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest
import torch

from syncverify.judge.violation import Violation
from syncverify.report.html.page import drawn, elements
from syncverify.report.html.render import rendered
from syncverify.report.report import Report
from syncverify.report.run import account_of
from syncverify.scenario.contract import Capabilities
from syncverify.search.found_violation import FoundViolation
from tests.programs import one_parameter

SCENARIO = one_parameter(2, "p", (2,), cap_bytes=64)
HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "]]></style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "\u2028\u2029{{ 7 * 7 }}{% raw %}",
    "\ud800 half a character",
)


class Page(HTMLParser):
    """The elements of a page, and the texts of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] += data
        self.text += data


def report(words: str) -> Report:
    violation = Violation("every_rank_finishes", "unclear_error", words, (0,), (words,))
    found = FoundViolation(violation, SCENARIO)
    return Report(words, "sim", 0, 1, 0.0, {}, (found,), explored=(words,))


@cache
def page(words: str) -> str:
    return rendered(account_of(report(words)), model(words))


def model(words: str) -> dict[str, Any]:
    return drawn(report(words), Capabilities(), [None])


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_words_add_no_element(words: str) -> None:
    plain, hostile = Page(page("plain")), Page(page(words))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in plain.elements]
    names = [sorted(attributes) for _, attributes in hostile.elements]
    assert names == [sorted(attributes) for _, attributes in plain.elements]
    assert hostile.scripts[1:] == plain.scripts[1:]
    assert words in hostile.text.replace("\n", "")
    assert json.loads(hostile.scripts[0]) == model(words)


def test_page_asks_nothing_of_a_network() -> None:
    parsed = Page(page("plain"))
    asking = {"src", "srcset", "action", "data", "poster", "background"}
    for tag, attributes in parsed.elements:
        assert tag not in {"link", "iframe", "object", "embed", "base", "form"}
        assert not asking & attributes.keys()
        assert attributes.get("href", "#").startswith("#")  # type: ignore[union-attr]  # a text
    (policy,) = [a["content"] for _, a in parsed.elements if "http-equiv" in a]
    assert policy.startswith("default-src 'none'")


def test_gradients_are_written_as_numbers() -> None:
    values = torch.zeros(2003)
    values[:3] = torch.tensor([1.0, -0.5, math.inf])
    text = elements(values)
    assert text.startswith("1, -0.5, inf, 0, ")
    assert text.endswith(", and 1,971 more")
    assert elements(None) == "no gradient"


def test_gradients_have_their_mean_and_what_is_wrong() -> None:
    gradient = {"parameter": "p", "rank": 0, "step": 0, "wrong": True}
    shown = {"expected": "4", "observed": "no gradient", "why": "it is gone"}
    means = {"expected_mean": 4.0, "observed_mean": "no gradient"}
    graph = {"rank": 0, "step": 0, "micro_batch": 0, "ran": [], "cut": False}
    section = {"gradients": [gradient | shown | means], "graph": graph}
    values = {"violations": [model("plain")["violations"][0] | section]}
    page = rendered(account_of(report("plain")), values)
    text = " ".join(Page(page).text.split())
    assert "it is gone" in text
    assert "p expected 4 observed no gradient" in text
