"""The example with tensor parallelism: its verdict, right and wrong.

Mistakes are planted into the source of the example and played on simulated ranks of the
harness, which takes a second; one run is a real one.
"""

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from syncverify.sim.machine import SimulatedMachine

NUM_STEPS = 1  # a wrong gradient makes a wrong parameter at once


@pytest.fixture
def source(examples: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The example's text, in a world in which it can be imported."""
    monkeypatch.syspath_prepend(examples)  # as a script it is found beside its model
    yield (examples / "train_gpt.py").read_text()
    sys.modules.pop("tiny_gpt", None)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def load_module(text: str) -> ModuleType:
        path = tmp_path / "train_gpt.py"
        path.write_text(text)
        spec = spec_from_file_location("train_gpt", path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "train_gpt", module)  # for its dataclass
        spec.loader.exec_module(module)
        return module

    return load_module


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
def test_two_by_two_ranks_train_as_one_process(torchrun, examples) -> None:
    finished = torchrun(examples / "train_gpt.py", "--steps=2", num_ranks=4)
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
def test_every_rank_reports_a_mistake(source, load, mistake: str) -> None:
    right, wrong, reported = MISTAKES[mistake]
    broken = source.replace(right, wrong)
    assert broken != source
    for failure in failures(load(broken)):
        assert failure.startswith(reported)


def test_a_difference_fails_the_program(source, load, monkeypatch, capfd) -> None:
    example = load(source)
    initialize = dist.init_process_group
    monkeypatch.setattr(
        dist,
        "init_process_group",
        lambda backend: initialize(
            backend, rank=0, world_size=1, store=dist.HashStore()
        ),
    )
    monkeypatch.setattr(example, "run_rank", lambda _: "the loss of step 1 differs")
    monkeypatch.setattr(sys, "argv", ["train_gpt.py"])
    assert example.main() == 1
    assert capfd.readouterr().err == "FAILED: on rank 0 the loss of step 1 differs\n"


def test_a_loss_that_is_no_number_differs(source, load) -> None:
    example = load(source)
    same, nan = example.Comparison([(1.0, 1.0)], 0.0), float("nan")
    assert not same.failure()
    assert "step 2" in example.Comparison([(1.0, 1.0), (nan, 1.0)], 0.0).failure()
