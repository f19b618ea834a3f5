"""Scripts that simulated ranks run, which takes milliseconds."""

import sys
from pathlib import Path
from typing import Any

import pytest

from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.recording.rank_recorder import RankRecorder

HERE = Path(__file__).parent


def verdicts(text: str, num_ranks: int) -> list[bool]:
    """Run `train` of a script on simulated ranks; return whether each rank found all right."""
    namespace: dict[str, Any] = {"__name__": "script", "__file__": str(HERE / "script")}
    with pytest.MonkeyPatch.context() as patch:
        # A script adds the folder of the subject.
        patch.setattr(sys, "path", [*sys.path])
        exec(compile(text, "script", "exec"), namespace)
    recorders = [RankRecorder(records_accesses=False) for _ in range(num_ranks)]
    machine = SimulatedMachine(num_ranks, recorders=recorders)
    results: dict[int, bool] = {}

    def program(rank: int) -> None:
        results[rank] = namespace["train"](rank)

    threads, stall = machine.run(program)
    assert stall is None
    errors = [thread.error for thread in threads if thread.error]
    assert not errors, errors
    return [results[rank] for rank in range(num_ranks)]
