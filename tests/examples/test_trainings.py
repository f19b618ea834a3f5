"""Examples that train: their verdicts, right and wrong.

Mistakes are planted into the source of the example and played on simulated ranks of the
harness, which takes a second; one run is a real one.
"""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from torch.distributed.device_mesh import init_device_mesh

from syncverify.sim.machine import SimulatedMachine

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NUM_STEPS = 1  # a wrong gradient makes a wrong parameter at once


def torchrun(
    script: Path, *arguments: str, num_ranks: int
) -> subprocess.CompletedProcess[str]:
    """Run a script with arguments on a number of ranks."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*launcher, f"--nproc-per-node={num_ranks}", str(script), *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def loaded(path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the example, in a world in which it finds its model."""
    for folder in (EXAMPLES, path.parent):
        monkeypatch.syspath_prepend(folder)
    module = import_module(path.stem)
    for name in ("tiny_gpt", "train_gpt"):
        del sys.modules[name]
    return module


def failures(example: ModuleType) -> list[str]:
    """Return the failure of each of four ranks; an equal training has none."""
    text = example.zen()
    model = example.make_model(text)
    found = [""] * 4

    def program(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        found[rank] = example.compare(model, text, mesh, NUM_STEPS).failure()

    ranks, stall = SimulatedMachine(4).run(program)
    assert stall is None
    for rank in ranks:
        if rank.error is not None:
            raise rank.error
    return found


@pytest.mark.nightly
def test_two_by_two_ranks_train_as_one_process() -> None:
    finished = torchrun(EXAMPLES / "train_gpt.py", "--steps=2", num_ranks=4)
    assert finished.returncode == 0, finished.stderr
    assert "│ 2 " in finished.stdout
    assert finished.stdout.splitlines()[-1] == "EQUAL: no difference above 1e-12"


CHOICE_OF_MESH = " and not is_used_on_other_heads(name)"
# Replaced text of the source, new text, and the start of each rank's output.
MISTAKES = {
    "used alike, and summed over tp": (
        CHOICE_OF_MESH,
        " and not name",
        "a final parameter",
    ),
    "used on other heads, and not summed": (CHOICE_OF_MESH, "", "a final parameter"),
    "a mean over micro-batches": (
        "sequences) / num_predictions(batch)",
        "sequences) / num_predictions(sequences)",
        "the loss of step 1",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES)
def test_every_rank_reports_a_mistake(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mistake: str
) -> None:
    right, wrong, reported = MISTAKES[mistake]
    source = (EXAMPLES / "train_gpt.py").read_text()
    broken = source.replace(right, wrong)
    assert broken != source
    script = tmp_path / "train_gpt.py"
    script.write_text(broken)
    found = failures(loaded(script, monkeypatch))
    assert [each.startswith(reported) for each in found] == [True] * 4


@pytest.mark.long
def test_training_on_two_ranks_equals_training_on_one() -> None:
    finished = torchrun(EXAMPLES / "train_digits.py", num_ranks=2)
    assert finished.returncode == 0, finished.stderr
    *epochs, last = finished.stdout.splitlines()
    assert [line.partition(":")[0] for line in epochs] == [
        f"epoch {number}" for number in range(1, 9)
    ]
    assert last.startswith("test accuracy 0.9")
    assert last.endswith(": equal")


@pytest.mark.nightly
def test_a_wrong_normalisation_is_reported(tmp_path: Path) -> None:
    """Divided by the size of the micro-batch, the gradients are four times too large."""
    source = (EXAMPLES / "train_digits.py").read_text()
    broken = source.replace('reduction="sum") / GLOBAL_BATCH', 'reduction="mean")')
    assert broken != source
    script = tmp_path / "train_digits.py"
    script.write_text(broken)
    finished = torchrun(script, num_ranks=2)
    assert finished.returncode != 0
    assert "FAILED: loss of epoch 1 step 1 is " in finished.stderr
