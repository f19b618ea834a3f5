"""`syncverify parity`: a whole training step, from the command line."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., Any]

TRAINING = """
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F


def build(width=8):
    return nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, 4))


def parallelize(model, mesh):
    fully_shard(model, mesh=mesh["dp"])


def batch(width=8):
    return {"x": torch.randn(8, width), "y": torch.randn(8, 4)}


def loss(model, batch):
    return F.mse_loss(model(batch["x"]), batch["y"])


layouts = [{"dp": 2}]
"""
WRONG = TRAINING.replace(
    'mesh=mesh["dp"])\n',
    'mesh=mesh["dp"])\n    model.set_gradient_divide_factor(1.0)\n',
)


@pytest.fixture(autouse=True)
def trainings(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "train.py").write_text(TRAINING)
    (tmp_path / "wrong.py").write_text(WRONG)
    yield
    for file in tmp_path.glob("*.py"):
        sys.modules.pop(file.stem, None)


@pytest.mark.long
def test_a_right_training_ends_with_0(call: Call) -> None:
    outcome = call("parity", "train.py", "--layouts", "all:2")
    assert outcome.code == 0
    assert outcome.out.endswith("NO VIOLATION: train.py (1 layout, 2 steps, seed 0)\n")


@pytest.mark.long
def test_a_wrong_training_is_played_again_by_its_replay_line(
    call: Call, tmp_path: Path
) -> None:
    outcome = call("parity", "wrong.py", "--json", "out.json", "--html", "out.html")
    assert outcome.code == 1
    title = (
        "VIOLATION: gradient (scaled)\n  Each rank has the value that one rank has.\n\n"
        "  gradient of {0,2}.weight, {0,2}.bias: multiplied by 2, the number of ranks of "
        "`dp` (dp=2, step 1, all ranks)\n  values:     "
    )
    hint = (
        "\n  hint:       divide the loss, or the sum of gradients, by the number of ranks of `dp` "
        "(wrong.py:"
    )
    assert outcome.out.startswith(title)
    assert hint in outcome.out
    (mistake,) = json.loads((tmp_path / "out.json").read_text())["violations"]
    assert mistake["cause"] == "scaled"
    assert "multiplied by 2" in (tmp_path / "out.html").read_text()
    again = call(*mistake["replay"].split()[1:])
    assert again.code == 1
    assert title in again.out
    assert mistake["replay"] in again.out
    assert again.out.endswith("\nREPRODUCED: wrong.py violates gradient (scaled)\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.py"], "there is no file none.py"),
        (["train.py", "--layouts", "dp=3"], "3 parts (dp) do not divide"),
        (["train.py", "--layouts", "dp"], "expected a layout such as dp=2,tp=2"),
        (["train.py", "--layouts", "all"], "expected a number of ranks"),
        (["train.py", "--size", "width"], "expected a size such as layers=1"),
        (["train.py", "--size", "depth=1"], "it takes: width"),
        (["train.py", "--data", "overflow"], "data 'overflow' need `scaler`"),
    ],
)
def test_bad_input_is_one_line(call: Call, arguments: list[str], words: str) -> None:
    outcome = call("parity", *arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.slow
def test_a_replay_line_names_the_data(call: Call, tmp_path: Path) -> None:
    """The step never clips, which no layout shows: gradients of all ones do."""
    step = """
def step(model, batch, optimizer):
    F.mse_loss(model(batch["x"]), batch["y"]).backward()
    optimizer.step()
    optimizer.zero_grad()


clip = 1.0
layouts = [{"dp": 2}]
"""
    text, _, _ = TRAINING.partition("def loss")
    (tmp_path / "unclipped.py").write_text(text + step)
    outcome = call("parity", "unclipped.py", "--json", "out.json")
    assert outcome.code == 1, outcome.out
    assert [line for line in outcome.err.splitlines() if "played" in line] == [
        "played 1 of 1 layouts"
    ]
    (mistake,) = json.loads((tmp_path / "out.json").read_text())["violations"]
    assert mistake["cause"] == "not_clipped"
    again = call(*mistake["replay"].split()[1:])
    assert again.code == 1
    assert " --data all-ones unclipped.py\n" in again.out
    plain = call("parity", "unclipped.py", "--data", "plain")
    assert plain.code == 0, plain.out


def test_a_mistyped_name_is_answered_with_the_right_one(
    call: Call, tmp_path: Path
) -> None:
    (tmp_path / "mistyped.py").write_text(TRAINING.replace("layouts", "layout"))
    outcome = call("parity", "mistyped.py", "--layouts", "dp=2")
    assert outcome.code == 2
    assert "has 'layout': is 'layouts' meant?" in outcome.err


def test_the_layouts_before_bad_input_are_reported(call: Call) -> None:
    outcome = call("parity", "train.py", "--layouts", "dp=2", "--layouts", "tp=2")
    assert outcome.code == 2
    assert "right, 54 values, off by at most" in outcome.out
    assert (
        "takes the axis 'dp' of the mesh, and the layout has 'tp' alone" in outcome.err
    )


@pytest.mark.long
def test_a_replay_line_names_the_number_of_micro_batches(
    call: Call, tmp_path: Path
) -> None:
    text = WRONG + "micro_batches = 2\n"
    (tmp_path / "a wrong one.py").write_text(text)
    outcome = call("parity", "a wrong one.py", "--json", "out.json")
    (mistake,) = json.loads((tmp_path / "out.json").read_text())["violations"]
    words = shlex.split(mistake["replay"])
    assert words[:2] == ["syncverify", "replay"]
    assert words[3:] == ["a wrong one.py"]
    again = call(*words[1:])
    assert f"\n{outcome.out.splitlines()[0]}\n" in again.out
    assert "dp=2                     1 micro-batch:" in again.out


@pytest.mark.parametrize(
    ("step", "code", "words"),
    [
        ("sys.exit(0)", 1, "WRONG, ranks 0, 1 ended before the training"),
        ("rpc.init_rpc('a')", 2, "NOT SIMULATED: early.py"),
    ],
)
def test_half_a_run_is_never_right(
    call: Call, tmp_path: Path, step: str, code: int, words: str
) -> None:
    text = f"{TRAINING}\n\nimport sys\nimport torch.distributed.rpc as rpc\n"
    (tmp_path / "early.py").write_text(f"{text}def step(model):\n    {step}\n")
    outcome = call("parity", "early.py")
    assert outcome.code == code
    assert words in outcome.out
    assert "NO VIOLATION" not in outcome.out


@pytest.mark.long
def test_ranks_that_have_the_same_rows_are_noted(call: Call, tmp_path: Path) -> None:
    text = TRAINING.replace('"dp"', '"fsdp"')
    (tmp_path / "same.py").write_text(text)
    outcome = call("parity", "same.py")
    assert "note: all ranks of fsdp=2 have the same rows" in outcome.out
    (tmp_path / "parts.py").write_text(f"{text}split = ['fsdp']\n")
    assert "note:" not in call("parity", "parts.py").out


def test_a_training_that_raises_on_one_rank_is_one_line(
    call: Call, tmp_path: Path
) -> None:
    text = TRAINING.replace('batch["y"]', 'batch["z"]')
    (tmp_path / "raises.py").write_text(text)
    outcome = call("parity", "raises.py")
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "KeyError: 'z', at raises.py:21 in loss" in outcome.err
