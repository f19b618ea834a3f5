"""The README shows real output and real observations."""

import inspect
import re
from pathlib import Path

import pytest

from examples.simulated_step import step
from syncverify import PropertyViolation, simulate, verify

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


@pytest.mark.long
@pytest.mark.usefixtures("hardly_shrunk")
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
