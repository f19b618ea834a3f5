"""Plays and searches inside a test that Hypothesis gives examples."""

import sys
from collections.abc import Callable

import pytest
from hypothesis import Phase, Verbosity, given, settings, target
from hypothesis import strategies as st
from hypothesis.statistics import collector

from syncverify import MeshSpec, ParameterSpec, Scenario, one_play
from syncverify.one_play import assert_right, play
from syncverify.repair import diagnosis
from syncverify.scenario.contract import Capabilities
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.search.outer_test import is_reported, unexplained
from syncverify.verification.verify import verify

QUIET = settings(
    max_examples=5,
    database=None,
    derandomize=True,
    verbosity=Verbosity.quiet,
    deadline=None,
    report_multiple_bugs=False,
)
SCENARIO = Scenario(
    MeshSpec((1,), ("dp",)), (ParameterSpec("p0", (), ("R",)),), (1,), 8
)


class Raises:
    """Fails in the first step of every scenario."""

    def __init__(self, *_arguments: object) -> None: ...
    def bind(self) -> None:
        raise RuntimeError

    def wait(self) -> None: ...
    def zero_grad(self) -> None: ...
    def unbind(self) -> None: ...


@pytest.fixture
def diagnoses(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note each violation that is diagnosed."""
    noted: list[str] = []

    def note(entry: FoundViolation, *_: object) -> object:
        noted.append(entry.violation.property)
        return entry

    monkeypatch.setattr(one_play, "diagnosed", note)
    monkeypatch.setattr(diagnosis, "diagnosed", note)
    return noted


def failures_of(body: Callable[[int], None], most: int = 1) -> int:
    """Let Hypothesis find, shrink and report a failure; return the number of plays."""
    plays = 0

    @QUIET
    @given(st.integers(0, most))
    def fails(number: int) -> None:
        nonlocal plays
        plays += 1
        body(number)

    with pytest.raises(AssertionError, match="every_rank_finishes"):
        fails()
    return plays


@pytest.mark.slow
def test_only_the_reported_play_is_diagnosed(diagnoses: list[str]) -> None:
    plays = failures_of(lambda _: assert_right(play(SCENARIO, Raises)))
    assert plays > 1
    assert diagnoses == ["every_rank_finishes"]


def test_play_alone_judges_and_does_not_diagnose(diagnoses: list[str]) -> None:
    played = play(SCENARIO, Raises)
    assert not played.is_right
    assert diagnoses == []
    with pytest.raises(AssertionError, match=r"(?m)^  scenario: 1 rank"):
        assert_right(played)
    assert diagnoses == ["every_rank_finishes"]


@pytest.mark.slow
@pytest.mark.usefixtures("hardly_shrunk")
def test_search_inside_a_test_is_diagnosed_once(diagnoses: list[str]) -> None:
    plays = failures_of(lambda _: verify_few(Raises), most=0)  # nothing to shrink
    assert plays > 1
    assert diagnoses == ["every_rank_finishes"]


def verify_few(subject: type) -> None:
    verify(subject, ranks=1, examples=1, seed=0)


@pytest.mark.slow
def test_search_does_not_depend_on_the_test_around_it() -> None:
    drawing = Drawing(Capabilities(), 2, 4, 0)
    alone, counted = drawing.drawn(), list[object]()

    @QUIET
    @given(st.integers())
    def inside(number: int) -> None:
        target(float(number % 7))  # of this test, with one value an example
        assert drawing.drawn() == alone

    with collector.with_value(counted.append):  # type: ignore[arg-type]
        inside()
    assert len(counted) == 1


def test_failure_is_reported_once() -> None:
    reported: list[bool] = []

    @QUIET
    @given(st.integers(0, 1000))
    def fails(number: int) -> None:
        reported.append(is_reported())
        assert number < 10

    assert is_reported()
    with pytest.raises(AssertionError):
        fails()
    assert reported.count(True) == 1
    assert reported[-1]


def test_harness_explains_no_failure() -> None:
    """Hypothesis traces lines of failing examples, except those of an `unexplained` function."""
    traced: list[bool] = []

    def note() -> None:
        traced.append(is_traced())

    @settings(QUIET, phases=[*Phase])
    @given(st.integers(0, 1000))
    def fails(number: int) -> None:
        note()
        unexplained(note)()
        assert number < 10

    with pytest.raises(AssertionError):
        fails()
    assert any(traced[::2]) or not can_trace()
    assert not any(traced[1::2])


def is_traced() -> bool:
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        return monitoring.get_tool(3) == "scrutineer" and monitoring.get_events(3) != 0
    return type(getattr(sys.gettrace(), "__self__", None)).__name__ == "Tracer"


def can_trace() -> bool:
    """Tell whether no other tool, such as coverage, traces this process."""
    return sys.version_info >= (3, 12) or sys.gettrace() is None
