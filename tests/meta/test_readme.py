"""The README shows real output and real observations."""

import inspect
import re
from pathlib import Path

import pytest

from examples.simulated_step import step
from syncverify import PropertyViolation, simulate, verify

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_readme_shows_a_diagnosis_of_a_real_release() -> None:
    assert "VIOLATION: " in README.partition("## See it catch something")[2]


@pytest.mark.long
def test_the_example_of_the_readme_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # subjects are found from there
    (subject,) = re.findall(r"syncverify run (examples\.[\w:]+)", README)
    with pytest.raises(PropertyViolation, match="reduced_early"):
        verify(subject, examples=20, seed=0)


def test_the_step_of_the_readme_is_that_of_the_example() -> None:
    (shown,) = re.findall(r"```python\n(def step.*?)\n\n", README, flags=re.DOTALL)
    lines = inspect.getsource(step).splitlines()
    kept = [line for line in lines if '"""' not in line]
    assert shown.splitlines()[1:] == kept[1:]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_the_step_of_the_readme_has_the_result_that_it_shows() -> None:
    (shown,) = re.findall(r"NO VIOLATION: \S+simulated_step.py:step .*", README)
    assert str(simulate(step, ranks=4)) == shown


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 180
    prose = re.sub(r"^ *```.*?^ *```$", "", README, flags=re.DOTALL | re.MULTILINE)
    assert [line for line in prose.splitlines() if len(line) > 140] == []


def test_the_first_screen_says_how_to_check_a_class_of_ones_own() -> None:
    screen = "\n".join(README.splitlines()[:40])
    for word in ("pip install", "class MySynchronizer", "syncverify run mysync.py:"):
        assert word in screen
