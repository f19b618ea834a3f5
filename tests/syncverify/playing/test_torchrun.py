"""The same command on the processes of a torchrun job."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from syncverify.command.verification.reported_search import _check_numbers
from syncverify.errors import UsageError
from syncverify.playing.messages import JobOutcome
from syncverify.playing.process_rank import Seat
from syncverify.playing.torchrun import RankPlayer, TorchrunBackend
from syncverify.scenario.settings import Settings
from syncverify.trace.run import Fault

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
EXAMPLES = "10"
TRANSPORTS = [
    "gloo",
    pytest.param(
        "nccl",
        marks=[
            pytest.mark.nccl,
            pytest.mark.skipif(
                torch.cuda.device_count() < 2, reason="needs 2 GPUs, one per rank"
            ),
        ],
    ),
]
DEFECTIVE = """
from syncverify.synchronizer import GradientSynchronizer

class Scales(GradientSynchronizer):
    def __init__(self, groups, bucket_size_mb, require_accumulations):
        super().__init__(groups, bucket_size_mb, require_accumulations)
        self.parameters = [p for group in groups for p in group]

    def wait(self):
        super().wait()
        for parameter in self.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(2)
"""


class GoneStore:
    """A store whose process has ended."""

    def set(self, key: str, value: str) -> None:
        raise dist.DistNetworkError("Failed to recv, got 0 bytes")


def player_on(store: object) -> RankPlayer:
    player = RankPlayer.__new__(RankPlayer)
    player._seat = Seat("gloo", store, 1, timedelta(), torch.device("cpu"))
    player._aborted_job = 0
    return player


def test_a_rank_whose_outcome_nobody_takes_raises_nothing_on_its_thread() -> None:
    """The main thread says in one line that the store is gone."""
    player_on(GoneStore())._tell(
        1, JobOutcome(fault=Fault("raised", (1,), "rank 1 raised"))
    )


@pytest.mark.parametrize(
    ("outcome", "is_noted"),
    [
        (JobOutcome(), False),
        (JobOutcome(fault=Fault("raised", (1,), "rank 1 raised")), True),
        (JobOutcome(refusal="no graphs"), True),
    ],
)
def test_peers_of_a_rank_that_failed_stop_waiting(
    outcome: JobOutcome, is_noted: object
) -> None:
    store = dist.HashStore()
    player_on(store)._tell(1, outcome)
    assert store.check(["fault/1"]) is is_noted


def test_more_ranks_than_processes_are_refused() -> None:
    backend = TorchrunBackend.__new__(TorchrunBackend)
    backend.name, backend.world_size = "gloo", 1
    with pytest.raises(UsageError, match=r"<= 1, the torchrun job's, got 3$"):
        _check_numbers(backend, Settings(ranks=3))


def torchrun(
    folder: Path, *arguments: str, num_processes: int = 2
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={num_processes}", "-m", "syncverify", *arguments,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_good_subject_passes_and_one_rank_speaks(
    tmp_path: Path, transport: str
) -> None:
    done = torchrun(
        tmp_path, "run", "synchronizer", "--backend", transport,
        "--examples", EXAMPLES, "--seed", "0",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    verdicts = [line for line in done.stdout.splitlines() if "VIOLATION" in line]
    assert len(verdicts) == 1
    assert verdicts[0].startswith("NO VIOLATION: synchronizer held all properties ")
    assert f"({EXAMPLES} scenarios on {transport}, seed 0, " in verdicts[0]


@pytest.mark.long
@pytest.mark.parametrize("transport", TRANSPORTS[1:])  # gloo: test_machines.py
def test_bad_subject_fails_with_a_shrunk_report(tmp_path: Path, transport: str) -> None:
    (tmp_path / "mine.py").write_text(DEFECTIVE)
    done = torchrun(
        tmp_path, "run", "mine:Scales", "--backend", transport,
        "--examples", EXAMPLES, "--seed", "0", "--json", "report.json",
    )  # fmt: skip
    # torchrun reports a failure of rank 0 as its own, with code 1.
    assert done.returncode == 1, done.stderr
    assert done.stdout.count("VIOLATION") >= 1
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["subject"], report["backend"]) == ("mine:Scales", transport)
    scaled = [v for v in report["violations"] if v["evidence"]["cause"] == "scaled"]
    forms = [form for v in scaled for form in (v, *v["other_forms"])]
    assert {form["property"] for form in forms} >= {"unreduced_stay_local"}
    assert {len(v["scenario"]["parameters"]) for v in scaled} == {1}


@pytest.mark.nccl
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("subject", ["synchronizer", "ddp"])
def test_one_gpu_plays_worlds_of_one_rank(tmp_path: Path, subject: str) -> None:
    done = torchrun(
        tmp_path, "run", subject, "--backend", "nccl",
        "--examples", EXAMPLES, "--seed", "0",
        num_processes=1,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"NO VIOLATION: {subject} held all properties" in done.stdout


@pytest.mark.nccl
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_one_gpu_tells_a_bad_subject(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(DEFECTIVE)
    done = torchrun(
        tmp_path, "run", "mine:Scales", "--backend", "nccl",
        "--examples", EXAMPLES, "--seed", "0", "--json", "report.json",
        num_processes=1,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert "scaled" in {v["evidence"]["cause"] for v in report["violations"]}
