"""The example trains, and notices when distributed training goes wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "train_digits.py"


def run(script: Path, num_ranks: int) -> subprocess.CompletedProcess[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*launcher, f"--nproc-per-node={num_ranks}", str(script)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@pytest.mark.slow
def test_training_on_two_ranks_equals_training_on_one() -> None:
    finished = run(EXAMPLE, num_ranks=2)
    assert finished.returncode == 0, finished.stderr
    *epochs, last = finished.stdout.splitlines()
    assert [line.partition(":")[0] for line in epochs] == [
        f"epoch {number}" for number in range(1, 9)
    ]
    assert last.startswith("test accuracy 0.9")
    assert last.endswith(": equal")


@pytest.mark.slow
def test_a_wrong_normalisation_is_reported(tmp_path: Path) -> None:
    """Divided by the size of the micro-batch, the gradients are four times too large."""
    source = EXAMPLE.read_text()
    broken = source.replace('reduction="sum") / GLOBAL_BATCH', 'reduction="mean")')
    assert broken != source
    script = tmp_path / "train_digits.py"
    script.write_text(broken)
    finished = run(script, num_ranks=2)
    assert finished.returncode != 0
    assert "FAILED: loss of epoch 1 step 1 is " in finished.stderr
