"""Each order that the machine adds decides about a race, and has a row in docs/ordering.md."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncverify.judge.ordering.races import judge_orderings
from syncverify.scenario.settings import NCCL_NAMES
from syncverify.sim.device import nccl_names
from tests.free_programs import play
from tests.syncverify.sim.edges import PROGRAMS

_ROOT = Path(__file__).parents[3]
_PACKAGE = _ROOT / "syncverify"
_PARTS = ("sim", "judge/ordering/happens_before.py", "trace/recorder.py")
# Functions that write down the orders that others add.
_WRITERS = frozenset(
    {
        "judge/ordering/happens_before.py:CollectiveClock.arrive",
        "sim/device/streams.py:RankStreams.wait",
        "sim/device/streams.py:RankStreams.wait_for_copy_of",
        "sim/device/streams.py:RankStreams._wait_on_host",
        "trace/recorder.py:Recorder.wait",
    }
)
_RECORDS = frozenset({"CollectiveWait", "HostWait", "StreamWait"})
_HOST_WAITS = frozenset(
    {"keep_for_thread", "wait_for_barrier", "wait_for_copy_of", "wait_on_host"}
)


def num_disorders(name: str, *, is_there: bool) -> int:
    machine = play(lambda _: PROGRAMS[name](is_there=is_there), 2, device="cuda")
    found = judge_orderings([recorder.trace for recorder in machine.recorders])
    return len(found.races) + len(found.early_frees)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_order_alone_decides_about_a_race(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "nccl2" in name:  # torch knows the name since 2.14
        known = frozenset(NCCL_NAMES)
        monkeypatch.setattr(nccl_names, "_named_in_torch", lambda: known)
    assert num_disorders(name, is_there=True) == 0
    assert num_disorders(name, is_there=False) > 0


def rows() -> list[list[str]]:
    text = (_ROOT / "docs/ordering.md").read_text("utf-8")
    part = text.partition("<!-- edges -->")[2].partition("<!-- end of edges -->")[0]
    lines = part.strip().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_lists_each_order_that_has_programs() -> None:
    assert [row[0] for row in rows()] == [*PROGRAMS]


@pytest.mark.slow
def test_the_page_lists_each_place_that_adds_an_order() -> None:
    listed = {site.strip("` ") for row in rows() for site in row[1].split(",")}
    assert listed == set(places()) - _WRITERS


def places() -> Iterator[str]:
    """Yield each function of the machine and of the judge that adds an order."""
    for part in _PARTS:
        for file in sorted((_PACKAGE / part).rglob("*.py")) or [_PACKAGE / part]:
            path = file.relative_to(_PACKAGE)
            for name in _functions(ast.parse(file.read_text("utf-8")), ()):
                yield f"{path}:{name}"


def _functions(node: ast.AST, names: tuple[str, ...]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ClassDef, ast.FunctionDef)):
            yield from _functions(child, (*names, child.name))
            continue
        if isinstance(child, ast.Call) and _adds_order(child.func):
            yield ".".join(names)
        yield from _functions(child, names)


def _adds_order(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "join" or function.id in _RECORDS
    if not isinstance(function, ast.Attribute):
        return False
    owner = function.value
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    is_wait = function.attr == "wait" and name in {"_streams", "recorder", "streams"}
    return is_wait or function.attr in _HOST_WAITS


def test_a_new_order_is_seen() -> None:
    added = "class A:\n    def f(self):\n        self._streams.wait(side, mark)\n"
    assert list(_functions(ast.parse(added), ())) == ["A.f"]
