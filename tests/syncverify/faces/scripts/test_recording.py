"""Scripts as they are: what is recorded on ranks that are processes, and how it is judged."""

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from syncverify import simulate
from syncverify.errors import UsageError
from syncverify.faces.scripts.recording import (
    Recording,
    _template_of,
    judge,
    read_recording,
    record,
    write_recording,
)
from syncverify.faces.scripts.script import Script
from syncverify.faces.simulation.simulation import Simulation
from tests.syncverify.faces.simulation.faulty_programs import FAULTS, Fault
from tests.warm_python import ROOT, python

HEAD = """
import os, sys, signal, time
import torch
import torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
ones = torch.ones(4, device=f"cuda:{rank}")
"""
PROGRAM = """
import sys
sys.path.insert(0, {root!r})
import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves
from tests.syncverify.faces.simulation.{module} import {name}

dist.init_process_group("nccl")
programs = {name} if isinstance({name}, tuple) else ({name},)
for program in programs:
    if len(programs) > 1 and program.__name__ == "makes_its_default_group_again":
        continue
    for each in tree_leaves(program(dist.get_rank())):
        if isinstance(each, torch.Tensor):
            each * 1
"""
Play = Callable[..., Simulation]


NAMES = ("norm", "embedding", "attention", "head", "router", "bias")


def in_order_of(names: str) -> str:
    """Return a script that sums a tensor for each name of an iterable."""
    return f"""{HEAD}
for name in {names}:
    dist.all_reduce(torch.ones(len(name), device="cuda"))
"""


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Recording]:
    def run(text: str, num_ranks: int = 2, seconds: float = 60) -> Recording:
        path = tmp_path / "train.py"
        path.write_text(text)
        return record(Script(str(path)), num_ranks, hang_timeout_seconds=seconds)

    return run


@pytest.fixture
def judged(recorded: Callable[..., Recording]) -> Play:
    return lambda *arguments, **named: judge(recorded(*arguments, **named))


def only(simulation: Simulation) -> str:
    (found,) = simulation.violations
    return found.violation.property


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(
            fault, marks=[pytest.mark.nightly] * (at % 2), id=fault.program.__name__
        )
        for at, fault in enumerate(FAULTS)
    ],
)
def test_a_fault_of_a_program_is_found_in_a_script(judged: Play, fault: Fault) -> None:
    name = fault.program.__name__
    text = PROGRAM.format(root=str(ROOT), module="faulty_programs", name=name)
    simulation = judged(text)
    assert only(simulation) == fault.violates
    (found,) = simulation.violations
    if fault.violates != "every_wait_completes":
        named = {line.number for line in found.violation.evidence.lines}
        assert named & fault.lines


@pytest.mark.long
def test_right_programs_are_right_in_a_script(judged: Play) -> None:
    text = PROGRAM.format(root=str(ROOT), module="right_programs", name="RIGHT")
    assert judged(text).is_right


@pytest.mark.long
def test_a_script_makes_its_default_group_twice(judged: Play) -> None:
    name = "makes_its_default_group_again"
    text = PROGRAM.format(root=str(ROOT), module="right_programs", name=name)
    text = text.replace('dist.init_process_group("nccl")', "import os")
    text = text.replace("dist.get_rank()", "int(os.environ['RANK'])")
    assert judged(text).is_right


DDP = f"""{HEAD}
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
model = torch.nn.Linear(4, 2).to(rank)
trained = DistributedDataParallel(model, device_ids=[rank])
optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    trained(ones).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""
BY_HAND = f"""{HEAD}
model = torch.nn.Linear(4, 2).cuda()
model(ones).sum().backward()
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    handles = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
    for handle in handles:
        handle.wait()
torch.cuda.current_stream().wait_stream(side)
torch.optim.SGD(model.parameters(), lr=0.1).step()
"""


@pytest.mark.long
@pytest.mark.parametrize("text", [DDP, BY_HAND], ids=["ddp", "by hand"])
def test_a_right_script_is_right(judged: Play, text: str) -> None:
    assert judged(text).is_right


@pytest.mark.long
def test_a_wait_that_is_taken_out_is_named(judged: Play) -> None:
    wait = "torch.cuda.current_stream().wait_stream(side)\n"
    simulation = judged(BY_HAND.replace(wait, ""))
    assert only(simulation) == "streams_order_shared_memory"
    assert ".step()" in str(simulation)


@pytest.mark.long
def test_traces_are_those_of_ranks_that_are_threads(
    recorded: Callable[..., Recording], tmp_path: Path
) -> None:
    recording = recorded(BY_HAND)
    program = compile(BY_HAND, str(tmp_path / "train.py"), "exec")
    simulation = simulate(lambda _: exec(program, {}))
    threads = [[type(each) for each in one.trace] for one in simulation.run.ranks]
    processes = [[type(each) for each in one.trace] for one in recording.run.ranks]
    assert threads == processes


ENDS = {
    "raise ValueError('boom')": ("every_rank_finishes", "train.py:12"),
    "os._exit(3)": ("every_rank_finishes", "SystemExit"),
    "os.kill(os.getpid(), signal.SIGKILL)": (
        "every_rank_finishes",
        "ended by signal 9, after all_reduce",
    ),
    "raise SystemExit": ("every_wait_completes", "rank 1: has finished"),
    "import atexit; atexit.register(dist.barrier)": ("every_wait_completes", "barrier"),
}


@pytest.mark.long
@pytest.mark.parametrize("end", ENDS)
def test_a_rank_that_ends_early_is_named(judged: Play, end: str) -> None:
    early = "dist.all_reduce(ones)\nif rank == 1:\n    "
    simulation = judged(f"{HEAD}{early}{end}\ndist.all_reduce(ones)\n")
    violates, words = ENDS[end]
    assert only(simulation) == violates
    assert words in str(simulation)


@pytest.mark.long
@pytest.mark.slow
def test_a_lost_rank_leaves_its_trace(recorded: Callable[..., Recording]) -> None:
    work = "for _ in range(50):\n    ones = ones * 1\n    dist.all_reduce(ones)\n"
    end = "if rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    recording = recorded(f"{HEAD}{work}{end}dist.all_reduce(ones)\n")
    assert "rank 1: ended by signal 9" in str(recording.run.fault)
    of_lost, of_other = (recording.run.ranks[rank].trace for rank in (1, 0))
    # A rank sends records when they are a quarter more; the last ones are lost with it.
    assert len(of_lost) >= 0.7 * len(of_other)


@pytest.mark.long
def test_a_rank_that_does_not_come_back_is_named_by_its_line(judged: Play) -> None:
    simulation = judged(f"{HEAD}while rank == 1:\n    pass\n", seconds=1)
    assert only(simulation) == "every_wait_completes"
    assert "while rank == 1" in str(simulation)


@pytest.mark.long
def test_ranks_wait_for_files_of_each_other(judged: Play, tmp_path: Path) -> None:
    done = str(tmp_path / "done")
    wait = f"    while not os.path.exists({done!r}):\n        time.sleep(0.01)\n"
    text = f"{HEAD}if rank == 0:\n{wait}else:\n    open({done!r}, 'w').close()\n"
    text += "dist.all_reduce(ones)\n"
    assert judged(text).is_right


@pytest.mark.long
def test_hosts_that_nccl_would_let_go_on_are_not_judged(judged: Play) -> None:
    text = f"""{HEAD}
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    dist.all_reduce(ones)
    store.set("key", "1")
else:
    store.wait(["key"])
    dist.all_reduce(ones)
"""
    assert "stand still" in judged(text).refused


LOADER = f"""{HEAD}
import numpy
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, at):
        return (torch.from_numpy(numpy.full(2, at)).to(torch.float32),)

if __name__ == "__main__":
    data = Rows()
    for (rows,) in DataLoader(data, 2, num_workers=1, pin_memory=True):
        summed = rows.cuda(non_blocking=True)
        dist.all_reduce(summed)
        torch.cuda.empty_cache()
"""


@pytest.mark.long
def test_a_loader_with_processes_and_pinned_memory_is_right(judged: Play) -> None:
    assert judged(LOADER).is_right


FORKS = f"""{HEAD}
dist.all_reduce(ones)
for code in (1, 3):
    child = os.fork()
    if child == 0 and code == 1:
        dist.all_reduce(ones)
    if child == 0:
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
dist.all_reduce(ones)
"""


@pytest.mark.long
def test_a_process_that_a_rank_forks_has_no_group_and_is_no_rank(
    judged: Play, capfd: pytest.CaptureFixture[str]
) -> None:
    assert judged(FORKS).is_right
    assert "a process that a rank has forked has no group" in capfd.readouterr().err


SPAWNS = f"""{HEAD}
import torch.multiprocessing

torch.multiprocessing.spawn(print, nprocs=2)
"""


@pytest.mark.long
def test_ranks_that_a_script_spawns_are_refused(judged: Play) -> None:
    assert "ranks that a script spawns" in judged(SPAWNS).refused


def test_a_script_without_a_collective_is_not_judged(judged: Play) -> None:
    assert judged("import torch\n").refused == "no rank has issued a collective"


def test_a_script_that_is_no_python_is_refused(judged: Play) -> None:
    with pytest.raises(UsageError, match=r"train\.py:2: "):
        judged("import torch\ndef f(:\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("recorded")
    (base / "train.py").write_text(BY_HAND)
    recording = record(Script(str(base / "train.py")), 2)
    write_recording(recording, base / "traces")
    assert read_recording(base / "traces") == recording
    return base / "traces"


def cut_last_bytes(path: Path) -> None:
    trace = path / "run.trace"
    trace.write_bytes(trace.read_bytes()[:-100])


def make_old(path: Path) -> None:
    line, _, rest = (path / "run.trace").read_bytes().partition(b"\n")
    header = json.loads(line) | {"syncverify": "0.0.1"}
    (path / "run.trace").write_bytes(json.dumps(header).encode() + b"\n" + rest)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (cut_last_bytes, r"run\.trace was cut or changed"),
        (make_old, r"recorded by syncverify 0\.0\.1"),
    ],
)
def test_a_trace_that_was_changed_is_refused(
    folder: Path, tmp_path: Path, change: Callable[[Path], None], words: str
) -> None:
    shutil.copytree(folder, tmp_path / "traces")
    change(tmp_path / "traces")
    with pytest.raises(UsageError, match=words):
        read_recording(tmp_path / "traces")


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no run\.trace"):
        read_recording(tmp_path)


@pytest.mark.long
def test_the_commands_record_and_judge(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        BY_HAND.replace("wait_stream(side)", "query()") + "print(sys.argv[1:])\n"
    )
    command = functools.partial(python, "-m", "syncverify", folder=tmp_path)
    recording = command("record", "train.py", "--steps", "3", "-h")
    assert (recording.returncode, recording.stderr) == (1, "")
    assert "['--steps', '3', '-h']" in recording.stdout
    again = command("judge", "recorded-train", "--json", "report.json")
    assert again.returncode == 1
    assert again.stdout in recording.stdout
    (violation,) = json.loads((tmp_path / "report.json").read_text())["violations"]
    replay = command("replay", violation["token"], "train.py")
    assert replay.returncode == 1
    assert "['--steps', '3', '-h']" in replay.stdout
    assert replay.stdout.endswith(
        "\nREPRODUCED: train.py violates streams_order_shared_memory (race)\n"
    )


@pytest.mark.long
def test_an_interrupt_keeps_what_was_recorded(tmp_path: Path) -> None:
    endless = (
        f"{HEAD}while True:\n    dist.all_reduce(ones)\n    print('one', flush=True)\n"
    )
    (tmp_path / "train.py").write_text(endless)
    recording = subprocess.Popen(
        [sys.executable, "-m", "syncverify", "record", "train.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert [recording.stdout.readline() for _ in range(8)] == ["one\n"] * 8
    recording.send_signal(signal.SIGINT)
    out, complaint = recording.communicate(timeout=300)
    assert (recording.returncode, complaint) == (130, "")
    assert "interrupted" in out
    assert len(read_recording(tmp_path / "recorded-train").run.ranks[0].trace) > 1


@pytest.mark.long
def test_a_set_of_strings_has_another_order_on_each_rank(
    judged: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under torchrun, where each process has a hash seed; two recordings have the same."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    of_set = in_order_of(str(set(NAMES)))
    (found,) = judged(of_set).violations
    assert found.violation.property == "collectives_match_across_ranks"
    (again,) = judged(of_set).violations
    assert again.violation.summary == found.violation.summary
    assert again.violation.evidence == found.violation.evidence
    assert judged(in_order_of(f"sorted({set(NAMES)})")).is_right
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    assert judged(of_set).is_right


def test_ranks_of_a_mesh_axis_have_different_hash_seeds() -> None:
    assert [_template_of(rank) for rank in range(8)] == [0, 1, 2, 3, 1, 2, 3, 0]
    pairs = [
        (rank, rank + step)
        for step in (1, 2, 4, 8, 16, 32)
        for rank in range(64)
        if not rank & step
    ]
    assert len(pairs) == 6 * 32
    assert not [pair for pair in pairs if len({*map(_template_of, pair)}) == 1]
