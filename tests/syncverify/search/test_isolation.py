"""A search depends on its seed: not on torch modes, local files or the example before."""

import itertools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import Phase, Verbosity, given, seed, settings, target
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.statistics import collector

from syncverify import verify
from syncverify.command.verification.assertion import assert_right
from syncverify.explain.repair import diagnosis
from syncverify.faces import one_play
from syncverify.faces.one_play import play
from syncverify.scenario.contract import Capabilities
from syncverify.search.drawing import Drawing
from syncverify.search.found_violation import FoundViolation
from syncverify.search.isolation import (
    independent_backend,
    shuffled_addresses,
    without_local_constants,
)
from tests.programs import one_parameter

# Modes of torch.


@contextmanager
def default_dtype():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(before)


STATES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default device": lambda: torch.device("meta"),
    "default dtype": default_dtype,
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("subject", ["synchronizer", "ddp"])
@pytest.mark.nightly
def test_a_right_subject_is_right_in_any_state(subject: str, state: str) -> None:
    with STATES[state]():
        assert verify(subject, ranks=2, examples=6, seed=0).examples == 6


# Constants of local files.


def integers() -> list[int]:
    drawn: list[int] = []

    @seed(0)
    @settings(max_examples=300, database=None, phases=[Phase.generate])
    @given(st.integers())
    def collect(value: int) -> None:
        drawn.append(value)

    collect()
    return drawn


@pytest.fixture
def local_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import a module of the user that mentions an unlikely number."""
    source = tmp_path / "local_module.py"
    source.write_text("NUMBERS = [918273645, 918273646, 918273647, 918273648]\n")
    module = ModuleType("local_module")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "local_module", module)


@pytest.mark.long
def test_local_code_changes_nothing(request: pytest.FixtureRequest) -> None:
    with without_local_constants():
        before = integers()
    request.getfixturevalue("local_module")
    # If Hypothesis no longer draws constants of local code, delete the guard.
    assert 918_273_645 in providers._get_local_constants().integers
    with without_local_constants():
        assert integers() == before


# The example before.

Digits = tuple[int, ...]
DIGITS: st.SearchStrategy[Digits] = st.tuples(*[st.integers(0, 99)] * 8)


def digits(backend: str, *, random_seed: int = 0) -> list[Digits]:
    drawn: list[Digits] = []

    @seed(random_seed)
    @settings(max_examples=300, database=None, phases=[Phase.generate], backend=backend)
    @given(DIGITS)
    def collect(example: Digits) -> None:
        drawn.append(example)

    collect()
    return drawn


def share_like_the_one_before(drawn: list[Digits]) -> float:
    """Return the share of examples that repeat half of the digits of the one before."""
    pairs = list(itertools.pairwise(drawn))
    alike = [sum(map(int.__eq__, *pair)) >= len(pair[0]) / 2 for pair in pairs]
    return sum(alike) / len(alike)


@pytest.mark.long
def test_independent_examples_share_nothing() -> None:
    # If Hypothesis no longer makes examples from examples, delete the guard.
    assert share_like_the_one_before(digits("hypothesis")) > 0.5
    drawn = digits(independent_backend())
    assert share_like_the_one_before(drawn) == 0
    assert len(set(drawn)) == len(drawn) == 300


# Addresses.


def order_of_addresses() -> list[int]:
    objects = [object() for _ in range(16)]
    return sorted(range(len(objects)), key=lambda index: id(objects[index]))


def test_shuffled_addresses_change_the_order_of_new_objects() -> None:
    with shuffled_addresses():
        shuffled = order_of_addresses()
    assert shuffled != sorted(shuffled)


# Plays and searches inside a test that Hypothesis gives examples.


QUIET = settings(
    max_examples=5,
    database=None,
    derandomize=True,
    verbosity=Verbosity.quiet,
    deadline=None,
    report_multiple_bugs=False,
)
SCENARIO = one_parameter(1, "p0", (), cap_bytes=8)


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


@pytest.mark.long
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
