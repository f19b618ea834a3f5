"""The example trains, and notices when distributed training goes wrong."""

from pathlib import Path

import pytest


@pytest.mark.long
def test_training_on_two_ranks_equals_training_on_one(torchrun, examples) -> None:
    finished = torchrun(examples / "train_digits.py", num_ranks=2)
    assert finished.returncode == 0, finished.stderr
    *epochs, last = finished.stdout.splitlines()
    assert [line.partition(":")[0] for line in epochs] == [
        f"epoch {number}" for number in range(1, 9)
    ]
    assert last.startswith("test accuracy 0.9")
    assert last.endswith(": equal")


@pytest.mark.nightly
def test_a_wrong_normalisation_is_reported(torchrun, examples, tmp_path: Path) -> None:
    """Divided by the size of the micro-batch, the gradients are four times too large."""
    source = (examples / "train_digits.py").read_text()
    broken = source.replace('reduction="sum") / GLOBAL_BATCH', 'reduction="mean")')
    assert broken != source
    script = tmp_path / "train_digits.py"
    script.write_text(broken)
    finished = torchrun(script, num_ranks=2)
    assert finished.returncode != 0
    assert "FAILED: loss of epoch 1 step 1 is " in finished.stderr
