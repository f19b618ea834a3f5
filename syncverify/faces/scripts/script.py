"""A training script in the process of a rank, started as torchrun starts it.

- Functions that it registers with `atexit` run before the trace ends.
- A process that it forks ends where it leaves the script, and is no second rank.
- Each rank keeps its warnings, and each is shown once: all ranks give the same ones.
"""

import atexit
import os
import runpy
import signal
import sys
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import torch

from syncverify.errors import RunEndedError, UsageError
from syncverify.faces.simulation.process_calls import calls_on_ranks
from syncverify.faces.simulation.program import Device, SimulatedProgram
from syncverify.late_imports import import_dynamo
from syncverify.plain_text import named
from syncverify.playing.messages import JobOutcome
from syncverify.playing.process_rank import outcome_of
from syncverify.playing.program.exact_arithmetic import exact_arithmetic
from syncverify.processes.wire import Wire
from syncverify.sim.apart.messages import Begun
from syncverify.sim.apart.rank_machine import RankMachine, RankPlace, rank_machine
from syncverify.sim.process_wide.rank_variables import one_machine
from syncverify.sim.turns.refusals import OWN_THREAD, Refusals, refusal
from syncverify.trace.records import Moment
from syncverify.trace.run import RankRun
from syncverify.trace.source_files import naming_torch

# Nobody connects: the store is the machine's.
_MASTER: Final = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
# Processes that a rank starts are no ranks: they find neither the machine nor its GPUs.
_NO_SPAWN = patch.object(
    torch.multiprocessing,
    "spawn",
    refusal("ranks that a script spawns; start them from outside, as torchrun does"),
)


@dataclass(frozen=True, slots=True)
class Script:
    """A script and its arguments."""

    # Path of the script, or name of a module.
    target: str
    arguments: tuple[str, ...] = ()
    # Whether `target` names a module, as after `python -m`.
    is_module: bool = False

    def check(self) -> None:
        """Do nothing if the script is there, and is Python."""
        if self.is_module:
            return
        if not Path(self.target).is_file():
            raise UsageError(f"expected a script: {self.target} is no file")
        try:
            compile(Path(self.target).read_bytes(), self.target, "exec")
        except (SyntaxError, ValueError) as error:
            line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
            raise UsageError(f"{self.target}{line}: {error.args[0]}") from None

    def run(self) -> None:
        """Run it as `python` runs it, and then the functions that it registers at exit."""
        with forked_processes_end(), exit_functions_run():
            sys.argv = [self.target, *self.arguments]
            if self.is_module:
                sys.path.insert(0, str(Path.cwd()))
                runpy.run_module(self.target, run_name="__main__", alter_sys=True)
            else:
                sys.path.insert(0, str(Path(self.target).resolve().parent))
                runpy.run_path(self.target, run_name="__main__")


@dataclass(frozen=True, slots=True)
class RankJob:
    """The work of one rank."""

    script: Script
    rank: int
    num_ranks: int
    device: Device
    names_torch: bool = False

    def set_variables(self) -> None:
        """Set the variables that torchrun sets for a rank of one machine."""
        rank, size = str(self.rank), str(self.num_ranks)
        os.environ.update(
            _MASTER,
            RANK=rank,
            LOCAL_RANK=rank,
            ROLE_RANK=rank,
            GROUP_RANK="0",
            WORLD_SIZE=size,
            LOCAL_WORLD_SIZE=size,
            ROLE_WORLD_SIZE=size,
            GROUP_WORLD_SIZE="1",
            TORCHELASTIC_RUN_ID="none",
            TORCHELASTIC_RESTART_COUNT="0",
            TORCHELASTIC_MAX_RESTARTS="0",
        )


@contextmanager
def exit_functions_run() -> Iterator[None]:
    """Run the functions that a block registers at exit, if it ends or raises `SystemExit`."""
    registered: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []

    def register(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        registered.append((function, args, kwargs))
        return function  # as a decorator

    def unregister(function: Callable[..., Any]) -> None:
        registered[:] = [each for each in registered if each[0] != function]

    def run_all() -> None:
        while registered:
            function, args, kwargs = registered.pop()
            try:
                function(*args, **kwargs)
            except Exception:  # noqa: BLE001  # Python, too, says so and goes on
                traceback.print_exc()

    with (
        patch.object(atexit, "register", register),
        patch.object(atexit, "unregister", unregister),
    ):
        try:
            yield
        except SystemExit:
            run_all()
            raise
        run_all()


@contextmanager
def forked_processes_end() -> Iterator[None]:
    """End a process that the block has forked, as Python ends it, where it leaves the block."""
    process, code = os.getpid(), 0
    try:
        yield
    except BaseException as error:
        if os.getpid() == process:
            raise
        code = _exit_code(error)
    if os.getpid() != process:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _exit_code(error: BaseException) -> int:
    """Return the exit code of an error, which is printed as Python prints it."""
    if not isinstance(error, SystemExit):
        traceback.print_exception(error)
        return 1
    if isinstance(error.code, int):
        return error.code
    if error.code is not None:
        sys.stderr.write(f"{error.code}\n")
    return int(error.code is not None)


@contextmanager
def warnings_kept() -> Iterator[dict[str, None]]:
    """Keep the warnings of a block, each once, as Python would show them."""
    kept = dict[str, None]()

    def keep(message: Any, category: Any, filename: str, lineno: int, *_: Any) -> None:
        kept[warnings.formatwarning(message, category, filename, lineno)] = None

    with patch.object(warnings, "showwarning", keep):
        yield kept


def show_warnings(of_ranks: Mapping[int, Sequence[str]]) -> None:
    """Show each warning once, with the ranks that gave it."""
    ranks_of = defaultdict[str, list[int]](list)
    for rank, of_rank in of_ranks.items():
        for each in of_rank:
            ranks_of[each].append(rank)
    for text, ranks in ranks_of.items():
        sys.stderr.write(f"{named('rank', ranks)}: {text}")


def main(wire: Wire) -> None:
    """Run the script of the job that comes on a wire, and send its outcome."""
    torch.set_num_threads(1)
    import_dynamo()
    job: RankJob = wire.receive()
    job.set_variables()
    rank, size = job.rank, job.num_ranks  # all ranks share a machine
    place = RankPlace(rank, size, is_for_nccl=False)
    if job.device == "cuda":
        place = RankPlace(rank, size, True, rank, size)
    with (
        one_machine(size),
        rank_machine(wire, place) as machine,
        warnings_kept() as kept,
    ):
        machine.recorder.moment = Moment("", 0)
        signal.signal(signal.SIGINT, machine.turns.interrupt)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        wire.send(Begun())
        came_to: JobOutcome | None = None
        with suppress(RunEndedError):  # the signal may come late
            came_to = outcome_of(
                lambda: _run(job, machine),
                rank,
                Refusals("sim", lambda: None, OWN_THREAD),
                lambda: machine.turns.has_ended,
            )
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        machine.recorder.finish()
        wire.send(machine.ended(came_to, kept))


def _run(job: RankJob, machine: RankMachine) -> None:
    setup = SimulatedProgram(
        lambda: job.script.run(), job.num_ranks, job.device, names_torch=job.names_torch
    )
    is_eager = torch.compiler.set_stance("force_eager")
    calls, naming = calls_on_ranks(machine.turns), naming_torch(is_on=job.names_torch)
    with exact_arithmetic(), is_eager, calls, naming, _NO_SPAWN:
        setup.on_rank(job.rank, machine.recorder, RankRun())
