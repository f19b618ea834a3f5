"""A search depends on its seed: not on torch modes, local files or the example before."""

import itertools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import Phase, find, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from syncverify import verify
from syncverify.search.isolation import (
    independent_backend,
    shuffled_addresses,
    without_local_constants,
)

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

UNLIKELY = 918_273_645


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


@pytest.mark.usefixtures("local_module")
def test_hypothesis_draws_constants_of_local_code() -> None:
    """If Hypothesis no longer does this, delete the guard."""
    assert UNLIKELY in providers._get_local_constants().integers


@pytest.mark.slow
def test_local_code_changes_nothing(request: pytest.FixtureRequest) -> None:
    with without_local_constants():
        before = integers()
    request.getfixturevalue("local_module")
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


@pytest.mark.slow
def test_hypothesis_makes_examples_from_examples() -> None:
    """If Hypothesis no longer does this, delete the guard."""
    assert share_like_the_one_before(digits("hypothesis")) > 0.5


def test_independent_examples_share_nothing() -> None:
    drawn = digits(independent_backend())
    assert share_like_the_one_before(drawn) == 0
    assert len(set(drawn)) == len(drawn) == 300


@pytest.mark.slow
def test_same_seed_same_examples() -> None:
    backend = independent_backend()
    assert digits(backend, random_seed=7) == digits(backend, random_seed=7)
    assert digits(backend, random_seed=7) != digits(backend, random_seed=8)


@pytest.mark.slow
def test_failing_examples_are_shrunk() -> None:
    configured = settings(
        max_examples=300, database=None, backend=independent_backend()
    )
    few = st.tuples(*[st.integers(0, 99)] * 3)
    found = find(few, lambda digits: sum(digits) > 150, settings=configured)
    assert sum(found) == 151
    assert min(found) == 0


# Addresses.


def order_of_addresses() -> list[int]:
    objects = [object() for _ in range(16)]
    return sorted(range(len(objects)), key=lambda index: id(objects[index]))


def test_shuffled_addresses_change_the_order_of_new_objects() -> None:
    with shuffled_addresses():
        shuffled = order_of_addresses()
    assert shuffled != sorted(shuffled)
