"""Two machines of one torchrun job, here two agents of one machine: one verdict, one end."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
# Run on each of the two, this plays a token again.
ON_BOTH = (
    "torchrun --nproc-per-node=1 --nnodes=2 --rdzv-backend=c10d "
    "--rdzv-endpoint=127.0.0.1:29400 -m syncverify"
)
SUBJECT = '''
import os, pathlib, signal
import torch.distributed as dist
from syncverify.synchronizer import GradientSynchronizer
from syncverify.playing import torchrun

torchrun._SILENCE_SECONDS["gloo"] = 6.0
PLAYER, OWNER = os.getpid(), os.getppid()
AGENT = int(pathlib.Path(f"/proc/{OWNER}/stat").read_text().rpartition(")")[2].split()[1])
with open("processes", "a") as file:  # the test ends those that are left
    file.write(f"{OWNER} {PLAYER} ")
num_waits = 0

class Right(GradientSynchronizer):
    """Does a deed on rank 1, in its fifth call of wait()."""

    def __init__(self, groups, bucket_size_mb, require_accumulations):
        super().__init__(groups, bucket_size_mb, require_accumulations)
        self.mine = [p for group in groups for p in group]

    def wait(self):
        global num_waits
        super().wait()
        if dist.get_rank() == 1:
            num_waits += 1
            self.act()

    def act(self):
        if num_waits == 5:
            exec(os.environ.get("DEED", ""))

class Wrong(Right):
    def act(self):
        super().act()
        for parameter in self.mine:
            if parameter.grad is not None:
                parameter.grad.mul_(2)
'''


@dataclass
class Machines:
    """Two agents, each with a folder and one rank."""

    folders: list[Path]
    agents: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, subject: str, *options: str, deed: str = "") -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        variables = {
            **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "DEED": deed
        }  # fmt: skip
        for number, folder in enumerate(self.folders):
            agent = subprocess.Popen(
                [
                    sys.executable, "-m", "torch.distributed.run", "--nnodes=2",
                    "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=job",
                    f"--rdzv-endpoint=127.0.0.1:{port}",
                    f"--rdzv-conf=is_host={1 - number}",
                    # The order of addresses is the order of ranks.
                    f"--local-addr=127.0.0.{1 + number}",
                    "-m", "syncverify", "run", f"mine:{subject}",
                    "--backend", "gloo", "--seed", "0", *options,
                ],
                cwd=folder,
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )  # fmt: skip
            self.agents.append(agent)
            variables.setdefault("FIRST_AGENT", str(agent.pid))

    def end(self, number: int) -> tuple[int, str, str]:
        """Return exit code, output and complaints; they come when no process is left."""
        out, err = self.agents[number].communicate()
        assert "Exception in thread" not in err, err
        messages = re.findall(r"^syncverify: (?:.|\n  )*", err, re.MULTILINE)
        return self.agents[number].returncode, out, "".join(messages).strip()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        (folder / "mine.py").write_text(SUBJECT)
    both = Machines(folders)
    yield both
    for agent in both.agents:
        agent.kill()
    for path in tmp_path.rglob("processes"):
        for pid in path.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    for agent in both.agents:
        agent.communicate()


@pytest.mark.nightly
def test_a_right_subject_ends_both_machines_with_0(machines: Machines) -> None:
    machines.start("Right", "--examples", "3")
    code, out, complaint = machines.end(0)
    assert (code, complaint) == (0, "")
    assert "NO VIOLATION: mine:Right held all properties" in out
    assert machines.end(1) == (0, "", "")


def test_a_defect_of_the_second_machine_is_found_and_reported_once(
    machines: Machines,
) -> None:
    machines.start("Wrong", "--stop-at-first")
    code, out, complaint = machines.end(0)
    assert (code, complaint) == (1, "")
    assert out.count("VIOLATION: gradient_equals_reference (scaled)") == 1
    assert re.search(r"seen on: +rank 1;", out)
    assert f" {ON_BOTH} replay sv2-" in out
    assert machines.end(1) == (1, "", "")


KILL, STOP = "signal.SIGKILL", "signal.SIGSTOP"
LOST = {
    "machine": f"[os.kill(pid, {KILL}) for pid in (AGENT, OWNER)]; signal.pause()",
    "rank": f"os.kill(PLAYER, {KILL})",
    "stopped rank": f"os.kill(PLAYER, {STOP})",
}


# The first machine sees the same in all of them.
@pytest.mark.parametrize(
    "what",
    [
        "rank",
        pytest.param("machine", marks=pytest.mark.nightly),
        pytest.param("stopped rank", marks=pytest.mark.nightly),
    ],
)
def test_a_rank_of_the_second_machine_that_is_lost_is_named_and_not_blamed(
    machines: Machines, what: str
) -> None:
    machines.start("Right", "--examples", "1000", deed=LOST[what])
    code, out, complaint = machines.end(0)
    assert code == 1  # torchrun's own, for any code but 0
    assert "VIOLATION" not in out
    first, silent, waiting, token = complaint.splitlines()
    assert first == "syncverify: no verdict: lost rank 1"
    host = socket.gethostname()
    assert silent.startswith(f"  rank 1: no sign of life for 6 s from {host}: ")
    assert waiting.startswith("  rank 0: ")
    line = rf"  in run \d+; to play that one: {re.escape(ON_BOTH)} replay sv2-"
    assert re.match(line, token)
    if what == "rank":  # the others end without a word
        words = r"syncverify: no verdict: the process of rank 1 ended by signal 9 in run \d+"
        assert re.match(words, machines.end(1)[2])


@pytest.mark.parametrize("number", [pytest.param(0, marks=pytest.mark.nightly), 1])
def test_an_interrupt_at_one_machine_ends_both_and_keeps_what_was_found(
    machines: Machines, number: int
) -> None:
    agent = ["int(os.environ['FIRST_AGENT'])", "AGENT"][number]
    machines.start(
        "Wrong",
        "--examples",
        "1000",
        "--database",
        ".syncverify",
        deed=f"os.kill({agent}, signal.SIGINT)",
    )
    _, out, complaint = machines.end(0)
    assert "FOUND gradient_equals_reference (scaled)" in out
    kept = (machines.folders[0] / ".syncverify").rglob("*")
    assert any(path.is_file() for path in kept)
    _, _, other_complaint = machines.end(1)
    if number == 0:
        assert complaint.startswith("syncverify: interrupted; ")
        assert other_complaint == ""
    else:
        assert other_complaint == "syncverify: interrupted"
        first, ended, *_ = complaint.splitlines()
        assert first == "syncverify: no verdict: lost rank 1"
        assert ended == f"  rank 1: exit code 130 on {socket.gethostname()}"


STORE_IS_GONE = (
    "syncverify: no verdict: torchrun's store is gone: its process on the machine of rank 0 was "
    "ended"
)


@pytest.mark.nightly
def test_the_end_of_torchrun_on_the_first_machine_ends_both(machines: Machines) -> None:
    kill = f"os.kill(int(os.environ['FIRST_AGENT']), {KILL})"
    deed = f"{kill}; __import__('threading').Event().wait()"
    machines.start("Right", "--examples", "1000", deed=deed)
    for number, expected in enumerate([-9, 1]):
        code, out, complaint = machines.end(number)
        assert (code, "VIOLATION" in out) == (expected, False)
        # The second torchrun misses the store too, and may end its rank before it complains.
        assert complaint == STORE_IS_GONE or (number == 1 and complaint == "")
