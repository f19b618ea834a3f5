"""The command that measures the harness, and the assumptions behind its numbers."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from studies.benchmarks.harness.players import (
    BrokenRunError,
    judge,
    play_plain,
    play_threaded,
    seconds_of_cores,
)
from studies.benchmarks.harness.scenarios import four_ranks, subject
from syncverify.backends.sim import SimBackend
from syncverify.subjects.subject import resolve
from syncverify.trace.run import RankRun, Run

ROOT = Path(__file__).parents[3]
KEYS = {
    "sim_vs_threaded", "sim_vs_spawned_gloo", "core_seconds_vs_warm_gloo",
    "drawn_vs_warm_gloo", "drawn_vs_limit", "recorded_vs_limit",
    "sim_cube_seconds", "fake_cube_seconds",
}  # fmt: skip


@pytest.mark.nightly
def test_command_writes_every_number_and_prints_it_beside_its_target(
    tmp_path: Path,
) -> None:
    written = tmp_path / "bench.json"
    ended = subprocess.run(
        [sys.executable, "-m", "studies.benchmarks.harness", "--smoke", "--json", str(written)],
        cwd=ROOT, env=os.environ | {"COLUMNS": "120"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    document = json.loads(written.read_text())
    assert all(isinstance(document[key], float) for key in KEYS)
    assert {measure["key"][0] for measure in document["measures"]} == KEYS
    assert all(measure["quartiles"] for measure in document["measures"])
    assert "<= 1.25 x" in ended.stdout
    assert ">= 50 x" in ended.stdout


class AsksItsGroup:
    """Notes the backend of the process group, and the result of a sum."""

    seen: list[tuple[str, float]] = []  # noqa: RUF012  # of all instances

    def __init__(self, groups: object, mb: float, count: int) -> None: ...

    def bind(self) -> None:
        one = torch.ones(())
        dist.all_reduce(one)
        self.seen.append((dist.get_backend(), one.item()))

    def wait(self) -> None: ...
    def zero_grad(self) -> None: ...
    def unbind(self) -> None: ...


def test_threads_meet_in_torchs_threaded_group() -> None:
    """The study relies on torch: `threaded` is registered, and its ranks exchange data."""
    AsksItsGroup.seen.clear()
    play_threaded(four_ranks()[:1], resolve(AsksItsGroup))
    assert AsksItsGroup.seen == [("threaded", 4.0)] * 4


@pytest.mark.slow
def test_a_run_that_breaks_is_not_measured() -> None:
    scenario = four_ranks()[0]
    run = Run("sim", tuple(RankRun() for _ in range(4)))
    judge(scenario, run, subject())  # nothing was seen, so nothing is wrong
    broken = SimBackend().run(scenario, resolve(AsksItsGroup))
    with pytest.raises(BrokenRunError, match="contains the own gradient of step 0"):
        judge(scenario, broken, resolve(AsksItsGroup))


def test_time_of_live_descendants_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks of gloo are children of a template, which is a child of this process."""
    busy = "while True: print(end='x', flush=True)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        try:
            written = child.stdout
            assert written is not None
            written.read(1)  # both have started
            monkeypatch.setattr(time, "process_time", lambda: 0.0)
            # The child waits, and takes less than a tick of the clock.
            assert seconds_of_cores(lambda: written.read(300_000)) > 0.03
        finally:
            os.killpg(child.pid, signal.SIGKILL)


def test_the_limit_plays_every_micro_batch_of_every_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 0
    backward = torch.Tensor.backward

    def counting(tensor: torch.Tensor) -> None:
        nonlocal count
        count += 1
        backward(tensor)

    monkeypatch.setattr(torch.Tensor, "backward", counting)
    play_plain(four_ranks())
    assert count == sum(4 * sum(each.accumulations) for each in four_ranks())
