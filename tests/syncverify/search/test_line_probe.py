"""Probes count the lines of a subject, and leave its functions as they were."""

import sys
from collections.abc import Callable
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pytest

from syncverify import verify
from syncverify.command.verification.verify import CoverageGap
from syncverify.search.line_probe import played_lines
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets

pytestmark = pytest.mark.slow  # beside many other objects of a test run


class Dormant(ViewBuckets):
    def wait(self) -> None:
        if self.param_groups is None:
            raise AssertionError
        super().wait()

    @property
    def first(self) -> int:
        return 1

    @cached_property
    def second(self) -> int:
        return 2

    @staticmethod
    def third() -> int:
        return 3

    @classmethod
    def fourth(cls) -> list[int]:
        return [number for number in (4,) if number]


@lru_cache
def fifth() -> int:
    return 5


def numbers_of(part: Callable[..., Any]) -> frozenset[int]:
    """Return the lines of a function below its first one."""
    code = part.__code__
    return frozenset(
        n for *_, n in code.co_lines() if n and n > code.co_firstlineno + 1
    )


@pytest.mark.long
def test_functions_of_all_kinds_are_probed_and_restored() -> None:
    codes = [Dormant.wait.__code__, Dormant.third.__code__]
    with played_lines(Dormant) as lines:
        made: Any = object.__new__(Dormant)
        assert (made.first, made.second, made.third(), made.fourth()) == (1, 2, 3, [4])
        assert fifth() == 5
    (played,) = (each for path, each in lines.items() if Path(__file__).name in path)
    for part in (
        Dormant.first.fget,
        Dormant.second.func,
        Dormant.third,
        fifth.__wrapped__,
    ):
        assert part.__code__.co_firstlineno + 2 in played.played
    assert not numbers_of(Dormant.wait) & played.played
    assert numbers_of(Dormant.wait) <= played.all
    assert codes == [Dormant.wait.__code__, Dormant.third.__code__]


def test_a_wrapped_synchronizer_counts_with_its_wrapper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "behind_probe.py").write_text("def run():\n    return 6\n")
    (tmp_path / "front_probe.py").write_text(
        "import behind_probe\nclass Front:\n    def run(self):\n        return behind_probe.run()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    front = __import__("front_probe")
    try:
        with played_lines(front.Front) as lines:
            assert front.Front().run() == 6
    finally:
        del sys.modules["front_probe"], sys.modules["behind_probe"]
    assert {Path(path).name for path in lines} == {"front_probe.py", "behind_probe.py"}


@pytest.mark.long
def test_a_search_reports_lines_and_may_fail_where_some_never_ran() -> None:
    report = verify(Dormant, ranks=2, examples=3, seed=0)
    (idle,) = (each for each in report.lines.idle if "param_groups" in each.reason)
    assert idle.reason == "`self.param_groups is None` was never true"
    assert report.to_json()["lines"]["all"] == report.lines.num_lines
    with pytest.raises(CoverageGap, match="expected 100 % of the lines"):
        verify(Dormant, ranks=2, examples=3, seed=0, require_lines=100)
