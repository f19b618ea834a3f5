"""Lines of a subject that no scenario ran, and why."""

from pathlib import Path

import pytest

from syncverify.report.played_lines import IdleLines, LineCoverage
from syncverify.search.line_probe import PlayedLines

SOURCE = '''\
def wait(self):
    if self.buffer.is_cuda:
        self.stream.wait()
        self.stream.close()
    else:
        self.count += 1
    try:
        self.finish()
    except RuntimeError:
        raise

def close(self):
    """Two lines that depend on nothing."""
    if self.is_open:
        self.flush()
'''
ALL = frozenset({2, 3, 4, 6, 7, 8, 9, 10, 14, 15})


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "sync.py"
    file.write_text(SOURCE)
    return str(file)


def reasons(path: str, played: set[int]) -> list[tuple[int, int, str]]:
    coverage = LineCoverage.of({path: PlayedLines(ALL, frozenset(played))})
    return [(each.first, each.last, each.reason) for each in coverage.idle]


def test_reasons_are_the_outermost_parts_that_were_not_entered(path: str) -> None:
    assert reasons(path, {2, 6, 7, 8}) == [
        (3, 4, "`self.buffer.is_cuda` was never true"),
        (9, 9, ""),
        (10, 10, "nothing raised RuntimeError"),
        (14, 15, "close() was never called"),
    ]


def test_an_else_is_idle_if_the_condition_always_held(path: str) -> None:
    assert reasons(path, set(ALL - {6, 15})) == [
        (6, 6, "`self.buffer.is_cuda` was never false"),
        (15, 15, "`self.is_open` was never true"),
    ]


def test_a_part_that_was_entered_is_no_reason(path: str) -> None:
    assert reasons(path, set(ALL - {4})) == [(4, 4, "")]


def test_conditions_on_the_machine_come_first_and_few_are_named(path: str) -> None:
    odd = frozenset(range(20, 40))
    files = {
        "a.py": PlayedLines(odd, odd - {20, 22, 24, 26}),
        path: PlayedLines(ALL, ALL - {3, 4}),
    }
    first, *others = LineCoverage.of(files).lines()
    assert first == f"lines: 24 of 30 in functions of {', '.join(sorted(files))} ran"
    assert others[0] == f"  never: {path}:3-4 (`self.buffer.is_cuda` was never true)"
    assert others[-1] == "  and 1 more (the JSON report lists all)"
    assert len(others) == 5


def test_nothing_is_said_where_nothing_was_counted() -> None:
    assert list(LineCoverage().lines()) == []
    assert "no line of the subject was counted" in (LineCoverage().gap(1) or "")


def test_a_gap_names_lines_and_the_remedy() -> None:
    coverage = LineCoverage(
        ("a.py",), 10, 8, (IdleLines("a.py", 3, 4, "`x` was never true"),)
    )
    assert coverage.gap(80) is None
    gap = coverage.gap(81)
    assert gap is not None
    assert "expected 81 % of the lines" in gap
    assert "a.py:3-4 (`x` was never true)" in gap
