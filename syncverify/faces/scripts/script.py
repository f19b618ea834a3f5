"""A training script, started as torchrun starts it."""

from __future__ import annotations

import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from syncverify.errors import UsageError
from syncverify.faces.scripts.surroundings import (
    exit_functions_run,
    forked_processes_end,
)
from syncverify.faces.simulation.program import Device
from syncverify.sim.apart.rank_machine import RankPlace

# Nobody connects: the store is the machine's.
_MASTER: Final = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


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
            self._run()

    def _run(self) -> None:
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

    @property
    def place(self) -> RankPlace:
        """Place of the rank; all ranks share a machine."""
        if self.device == "cpu":
            return RankPlace(self.rank, self.num_ranks, is_for_nccl=False)
        return RankPlace(self.rank, self.num_ranks, True, self.rank, self.num_ranks)

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
