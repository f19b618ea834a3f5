"""Results are rendered by the report, which they do not import."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from syncverify.faces.simulation.simulation import Simulation
from syncverify.faces.whole_step.outcome import Parity

REFUSED = Simulation("job.py:step", 2, "cuda", 0, refused="a kernel")
TEXT = "NOT SIMULATED: job.py:step (2 ranks, simulated cuda): a kernel"


def test_each_kind_of_result_is_rendered(tmp_path: Path) -> None:
    nothing = Parity("job", "", (), (), 1, 0)
    assert str(REFUSED) == TEXT
    assert str(nothing) == "NO VIOLATION: job (0 layouts, 1 step, seed 0)"
    assert nothing.to_json()["right"] is True
    nothing.write_html(tmp_path / "page.html")
    assert "NO VIOLATION: job" in (tmp_path / "page.html").read_text()


@pytest.mark.long
def test_a_result_of_another_process_is_rendered() -> None:
    """Its class is all that the process has imported."""
    script = "import pickle, sys; print(pickle.load(sys.stdin.buffer))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps(REFUSED), capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.decode().strip() == TEXT
