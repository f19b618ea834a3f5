"""The benchmarks: their numbers and targets, and how rounds become numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from studies.benchmarks.harness.players import BrokenRunError, judge
from studies.benchmarks.harness.scenarios import four_ranks, subject
from studies.benchmarks.measure import Measure, ratio
from studies.benchmarks.rounds import Rounds, slowest_rank, take_turns
from syncverify.playing.sim import SimBackend
from syncverify.subjects.subject import resolve
from syncverify.trace.run import RankRun, Run

ROOT = Path(__file__).parents[3]
MODELS = {"small", "medium", "large"}


def measured(name: str, folder: Path) -> tuple[dict[str, Any], str]:
    """Return the document that a benchmark writes, and what it prints."""
    written = folder / "bench.json"
    ended = subprocess.run(
        [sys.executable, "-m", f"studies.benchmarks.{name}", "--smoke", "--json", str(written)],
        cwd=ROOT, env=os.environ | {"COLUMNS": "120"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return json.loads(written.read_text()), ended.stdout


@pytest.mark.nightly
def test_the_harness_has_every_number_beside_its_target(tmp_path: Path) -> None:
    document, out = measured("harness", tmp_path)
    names = {measure["key"][0] for measure in document["measures"]}
    assert len(names) == 8
    assert all(isinstance(document[name], float) for name in names)
    assert all(measure["quartiles"] for measure in document["measures"])
    assert "<= 1.25 x" in out
    assert ">= 50 x" in out


@pytest.mark.nightly
def test_the_synchronizer_has_every_number_beside_its_target(tmp_path: Path) -> None:
    document, out = measured("synchronizer", tmp_path)
    for name in ("step_vs_ddp", "step_vs_ddp_to_none"):
        # Where a compiler is, each model is trained with the hook in C++ as well.
        assert {key.removesuffix(", hook in C++") for key in document[name]} == MODELS
        assert {*map(type, document[name].values())} == {float}
    assert {*document["mesh_vs_sequential"]} == {"8MiB", "4KiB"}
    # On a busy machine a round without communication may be the slower one.
    assert len(document["exposed_vs_ddp"]) == len(MODELS)
    assert "step_vs_d9d" in document  # None where d9d is not installed
    assert "<= 0.05 x" in out
    assert len(document["measures"]) == out.count("<= ")


class Sums:
    """Puts a sum of its own into no gradient."""

    def __init__(self, groups: object, mb: float, count: int) -> None: ...
    def bind(self) -> None: ...
    def wait(self) -> None: ...
    def zero_grad(self) -> None: ...
    def unbind(self) -> None: ...


@pytest.mark.long
def test_a_run_that_breaks_is_not_measured() -> None:
    scenario = four_ranks()[0]
    run = Run("sim", tuple(RankRun() for _ in range(4)))
    judge(scenario, run, subject())  # nothing was seen, so nothing is wrong
    broken = SimBackend().run(scenario, resolve(Sums))
    with pytest.raises(BrokenRunError, match="contains the own gradient of step 0"):
        judge(scenario, broken, resolve(Sums))


def test_contestants_take_turns_in_an_order_that_rotates() -> None:
    order: list[str] = []

    def contestant(name: str) -> float:
        order.append(name)
        return float(len(order))

    contestants = {name: lambda name=name: contestant(name) for name in "abc"}
    times = take_turns(
        contestants, Rounds(count=2, warm_up=1), line_up=lambda: order.append("-")
    )
    assert "".join(order) == "-c-a-b" + "-a-b-c" + "-b-c-a"
    assert times == {"a": [8.0, 18.0], "b": [10.0, 14.0], "c": [12.0, 16.0]}


def test_a_ratio_is_taken_round_by_round_of_the_slowest_rank() -> None:
    assert slowest_rank([{"a": [1.0, 5.0]}, {"a": [2.0, 4.0]}]) == {"a": [2.0, 5.0]}
    times = {"ours": [1.0, 20.0, 3.0], "peer": [2.0, 40.0, 2.0]}
    measure = ratio(("key",), times, "ours", "peer", target=0.5)
    assert (measure.value, measure.quartiles) == (0.5, (0.5, 1.0))
    assert measure.medians_ms == {"ours": 3000.0, "peer": 2000.0}


@pytest.mark.parametrize(
    ("value", "quartiles", "verdict"),
    [
        (0.8, (0.7, 0.9), "met"),
        (1.2, (1.1, 1.3), "missed"),
        (0.9, (0.8, 1.1), "met, within spread"),
        (1.1, (0.9, 1.2), "missed, within spread"),
        (None, None, "not measured"),
    ],
)
def test_a_verdict_is_honest(
    value: float | None, quartiles: tuple[float, float] | None, verdict: str
) -> None:
    measure = Measure(("key",), "peer", 1.0, value=value, quartiles=quartiles)
    assert measure.verdict == verdict
