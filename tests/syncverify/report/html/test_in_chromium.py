"""The page in a browser: a thousand events, the keyboard, no complaint and no request."""

import itertools
import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from syncverify.report.account import Account, Explanation
from syncverify.report.html.page import drawn
from syncverify.report.html.render import rendered
from syncverify.report.report import Report
from syncverify.scenario.contract import Capabilities

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]

STREAMS = ("default", "side", f"nccl stream of ranks {[*range(16)]}")
NUM_RANKS, NUM_STEPS = 4, 250
# A browser without a screen draws frames at random; its virtual time drives timers.
FRAMES = "<script>window.requestAnimationFrame = (then) => setTimeout(then, 0)</script>"
# Test script: presses keys, and writes observations into the title.
PROBE = """
const seen = {};
const chart = document.querySelector(".chart");
const about = document.querySelector(".timeline .about");
const press = (key) => chart.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const frames = (then) => setTimeout(then, 100);
const count = () => chart.querySelectorAll("[data-event]").length;
frames(() => {
  seen.near = count();
  seen.labels = [...chart.querySelectorAll(".label")].map((each) => each.textContent);
  seen.lanes = [...chart.querySelectorAll("text.soft")].map((each) => each.textContent).join(" ");
  seen.missing = chart.querySelectorAll(".missing").length;
  press("0");
  frames(() => {
    seen.whole = count();
    seen.wide = chart.querySelector("text.soft").textContent;
    press("Home"); seen.home = about.textContent;
    press("ArrowRight"); seen.right = about.textContent;
    press("ArrowDown"); seen.down = about.textContent;
    press("End"); seen.end = about.textContent;
    const map = document.querySelector("canvas");
    map.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", cancelable: true }));
    seen.pair = document.querySelector(".heat-map .about").textContent;
    const slider = document.querySelector("input[type=range]");
    slider.value = 5; slider.dispatchEvent(new Event("input"));
    frames(() => {
      press("0");
      frames(() => {
        seen.later = chart.querySelectorAll(".event.later").length;
        seen.bars = document.querySelectorAll(".bar").length;
        const graph = document.querySelector(".graph svg");
        seen.graph = [...graph.querySelectorAll("text")].map((each) => each.textContent).join("");
        seen.edges = graph.querySelectorAll(".missing").length;
        seen.words = graph.querySelector("desc").textContent;
        seen.inside = [...graph.querySelectorAll("text")].every((each) => {
          const [box, all] = [each.getBoundingClientRect(), graph.getBoundingClientRect()];
          return box.left >= all.left && box.right <= all.right;
        });
        seen.nodes = document.querySelectorAll(".node").length;
        seen.requests = performance.getEntriesByType("resource").length;
        seen.overflow = document.documentElement.scrollWidth - innerWidth;
        document.title = JSON.stringify(seen);
      });
    });
  });
});
"""


def place(rank: int, lane: str, start: int) -> dict[str, Any]:
    return {"rank": rank, "lane": lane, "start": start}


def labels(start: int) -> list[str]:
    return [f"e{start} p", f"e{start}"]


def event(rank: int, start: int) -> dict[str, Any]:
    kinds = ("accumulate", "operator", "collective")
    lane, kind = STREAMS[start % 3], kinds[start % 3]
    fixed = {"moment": "step 0", "source": "a.py:1", "bytes": 4, "open": False}
    named = {"kind": kind, "name": f"e{start}", "parameters": ["p"]}
    named["labels"] = labels(start)
    return {
        **place(rank, lane, start),
        "end": start + 1,
        "told": False,
        **named,
        **fixed,
    }


def timeline() -> dict[str, Any]:
    ranks, meetings = range(NUM_RANKS), range(2, NUM_STEPS, 3)
    lanes = [{"rank": r, "lane": lane} for r in ranks for lane in ("calls", *STREAMS)]
    arrows = [
        {
            "kind": "match",
            "tail": place(r, STREAMS[2], at),
            "head": place(r + 1, STREAMS[2], at),
        }
        for r in ranks[:-1]
        for at in meetings
    ]
    return {
        "ticks": NUM_STEPS + 1,
        "lanes": lanes,
        "events": [event(rank, start) for rank in ranks for start in range(NUM_STEPS)],
        "arrows": arrows,
        "race": {"first": 120, "second": 121, "remedy": "insert a wait"},
    }


def violation() -> dict[str, Any]:
    right = {
        "parameter": "p",
        "rank": 0,
        "step": 0,
        "why": "",
        "wrong": False,
    }
    values = {"expected": "2", "observed": "2"}
    means = {"expected_mean": 2.0, "observed_mean": 2.0}
    hooks = [
        {"title": "post-accumulate hook h", "source": "a.py:1 in h"}
        | {"lines": ["launches all_reduce"], "guilty": True}
    ]
    ran = {"order": 1, "stream": "side", "lines": [], "hooks": [], "guilty": False}
    nodes = [
        {**ran, "kind": "function", "name": "SumBackward0", "depth": 0},
        {**ran, "kind": "parameter", "name": "p" * 200, "depth": 1, "hooks": hooks},
    ]
    missing = [{"tail": [1, None], "head": [1, 0], "label": "nothing orders these"}]
    at = {"rank": 0, "step": 0, "micro_batch": 0, "cut": False}
    seen = {"missing": missing, "streams": ["default", "side"], "ran": nodes}
    return {
        "timeline": timeline(),
        "gradients": [{**right, **values, **means}],
        "graph": {**at, **seen, "nodes": nodes, "edges": [[0, 1]]},
    }


class Title(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.title, self.inside = "", False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.inside = tag == "title"

    def handle_data(self, data: str) -> None:
        if self.inside and not self.title:  # drawings have titles as well
            self.title = data

    def handle_endtag(self, tag: str) -> None:
        self.inside = False


def browse(text: str, folder: Path, width: int = 1300) -> tuple[str, str]:
    """Return the document that a browser makes of a page, and its complaints."""
    page = folder / "page.html"
    page.write_text(text)
    done = subprocess.run(
        [
            str(CHROMIUM),
            *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"),
            *("--no-first-run", "--disable-background-networking", "--disable-sync"),
            *("--disable-component-update", "--enable-logging=stderr"),
            *("--disable-extensions", "--dump-dom", "--virtual-time-budget=4000"),
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder / 'profile'}",
            f"--window-size={width},900",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, "\n".join(complaints)


def page_of(violations: list[dict[str, Any]]) -> str:
    values = drawn(Report("s", "sim", 0, 1, 0.0, {}, ()), Capabilities(), [])
    features = ["a=1", "a=2", "b=1", "b=2"]
    pairs = {"features": features, "pairs": [[0, 2, 3], [1, 2, 0]]}
    values["explored"]["coverage"] = pairs
    one = Explanation(
        property="every_rank_finishes",
        cause="unclear_error",
        statement="s",
        summary="s",
    )
    account = Account(
        subject="s", verdict="v", is_right=False, explanations=[one] * len(violations)
    )
    return rendered(account, values | {"violations": violations})


def with_script(page: str, script: str) -> str:
    page = page.replace("<style>", f"{FRAMES}<style>")
    return page.replace("</body>", f"<script>{script}</script></body>")


@pytest.mark.parametrize("width", [1300, 500])
def test_page_in_a_browser(tmp_path: Path, width: int) -> None:
    page = with_script(page_of([violation()]), PROBE)
    document, complaints = browse(page, tmp_path, width)
    assert complaints == ""
    seen = json.loads(Title(document).title)
    assert 0 < seen["near"] < 250  # a window of the thousand
    assert seen["whole"] > seen["near"]
    assert seen["missing"] == 1
    # Texts are whole, or are left out.
    assert {*seen["labels"]} <= {*itertools.chain(*map(labels, range(NUM_STEPS)))}
    # Events at the borders have less room.
    assert len(seen["labels"]) > 0.7 * seen["near"]
    assert STREAMS[2] in seen["lanes"]
    assert seen["home"].startswith("e0 · rank 0, default")
    assert seen["right"].startswith("e0 · rank 1, default")
    assert seen["down"].startswith("e1 · rank 1, side")
    assert seen["end"].startswith(f"e{NUM_STEPS - 1} · rank {NUM_RANKS - 1}")
    assert seen["pair"] == "b=1 with a=1: 3 scenarios"
    assert seen["later"] > 0
    assert (seen["bars"], seen["nodes"]) == (2, 2)
    assert "p" * 200 in seen["graph"]  # in lines, and whole
    assert "1 · SumBackward0on side" in seen["graph"]
    assert "⚑ post-accumulate hook hlaunches all_reduce" in seen["graph"]
    assert seen["edges"] == 1
    assert seen["words"].endswith(
        f"From {'p' * 200} to {'p' * 200}, post-accumulate hook h: nothing orders these"
    )
    assert seen["inside"]
    assert seen["overflow"] <= 0
    assert seen["requests"] == 0


def test_request_of_a_page_is_seen(tmp_path: Path) -> None:
    """Without this, no complaint could mean that nobody listens."""
    _, complaints = browse(
        with_script(page_of([]), "fetch('https://localhost/')"), tmp_path
    )
    assert "Content Security Policy" in complaints
