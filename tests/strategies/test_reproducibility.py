"""What is drawn depends on the seed alone."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from strategies.reproducibility import blind_to_local_code

UNLIKELY = 918_273_645


def draws() -> list[int]:
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
    """A module of the user's that mentions an unlikely number."""
    source = tmp_path / "local_module.py"
    source.write_text("NUMBERS = [918273645, 918273646, 918273647, 918273648]\n")
    module = ModuleType("local_module")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "local_module", module)


@pytest.mark.usefixtures("local_module")
def test_hypothesis_draws_what_local_code_mentions() -> None:
    """What we guard against; if it is gone, so may be the guard."""
    assert UNLIKELY in providers._get_local_constants().integers


def test_local_code_changes_nothing(request: pytest.FixtureRequest) -> None:
    with blind_to_local_code():
        before = draws()
    request.getfixturevalue("local_module")
    with blind_to_local_code():
        assert draws() == before
