"""Record a script: start a process for each rank, hand out turns, and keep the traces."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from syncverify.errors import InternalError
from syncverify.faces.scripts.kept_warnings import show_warnings
from syncverify.faces.scripts.script import RankJob, Script
from syncverify.faces.simulation.host_waits import is_deadlock, unknown_stall
from syncverify.faces.simulation.playing import Played
from syncverify.faces.simulation.program import Device
from syncverify.playing.faults import hub_fault
from syncverify.playing.messages import JobOutcome
from syncverify.processes.forked_process import start
from syncverify.scenario.settings import SCRIPT_HANG_TIMEOUT_SECONDS
from syncverify.sim.apart.hub import Hub
from syncverify.trace.run import RankRun, Run

_NUM_HASH_SEEDS = 4


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded script.

    Attributes:
        lost: How the process of a rank ended without a last word, by rank.
    """

    script: Script
    device: Device
    run: Run
    refused: str = ""
    lost: dict[int, str] = field(default_factory=dict)
    was_interrupted: bool = False

    @property
    def num_ranks(self) -> int:
        """World size."""
        return len(self.run.ranks)


def record(
    script: Script,
    num_ranks: int,
    *,
    device: Device = "cuda",
    hang_timeout_seconds: float = SCRIPT_HANG_TIMEOUT_SECONDS,
    names_torch: bool = False,
) -> Recording:
    """Run a script as torchrun does, with a simulated machine in the process of each rank.

    Args:
        num_ranks: World size; all ranks share a machine.
        names_torch: Whether reports name torch's own lines.

    Returns:
        The recording; of an interrupted run the traces so far.

    Raises:
        UsageError: The script is not there.
        InternalError: The machine is at fault.
    """
    script.check()
    processes = [
        start("syncverify.faces.scripts.rank", _template_of(rank))
        for rank in range(num_ranks)
    ]
    for rank, process in enumerate(processes):
        with contextlib.suppress(OSError):  # it is gone, and is heard to be
            process.send(RankJob(script, rank, num_ranks, device, names_torch))
    hub = Hub(
        processes,
        hang_timeout_seconds,
        passes_stalls=device == "cuda",
    )
    was_interrupted = False
    try:
        hub.run()
    except KeyboardInterrupt:
        was_interrupted = True
    finally:
        hub.end_processes()
    ended = {own.rank: own.ended for own in hub.ranks if own.ended is not None}
    show_warnings({rank: last.warnings for rank, last in ended.items()})
    return _Heard(hub, script, device).recording(was_interrupted=was_interrupted)


def _template_of(rank: int) -> int:
    """Return the template of a rank, which gives it a hash seed of strings.

    Under torchrun each rank has a random seed. Here it is one of four, so that four imports of
    torch serve all ranks. It is the sum of the rank's digits to the base 4, so that ranks apart by a
    power of two, as those of a mesh axis, have different seeds.
    """
    total = 0
    while rank:
        rank, digit = divmod(rank, _NUM_HASH_SEEDS)
        total += digit
    return total % _NUM_HASH_SEEDS


@dataclass(frozen=True, slots=True)
class _Heard:
    """The messages that a hub has heard."""

    hub: Hub
    script: Script
    device: Device

    def recording(self, *, was_interrupted: bool) -> Recording:
        """Return the recording.

        Raises:
            InternalError: The machine is at fault.
        """
        for came_to in self._came_to():
            if came_to.harness_error is not None:
                raise InternalError(came_to.harness_error)
        ranks = tuple(RankRun(trace=own.trace) for own in self.hub.ranks)
        raised = (came_to.fault for came_to in self._came_to())
        fault = None if was_interrupted else hub_fault(self.hub, raised)
        return Recording(
            script=self.script,
            device=self.device,
            run=Run("sim", ranks, fault),
            refused=self._refused(),
            lost={own.rank: own.lost for own in self.hub.ranks if own.lost is not None},
            was_interrupted=was_interrupted,
        )

    def _came_to(self) -> Iterator[JobOutcome]:
        for own in self.hub.ranks:
            if own.ended is not None and own.ended.came_to is not None:
                yield own.ended.came_to

    def _refused(self) -> str:
        refused = (
            came_to.refusal or came_to.usage_error for came_to in self._came_to()
        )
        return next(filter(None, refused), "") or self._unknown_stall()

    def _unknown_stall(self) -> str:
        """Say why the stall of hosts is not judged; "" if there is none, or it is."""
        hub = self.hub
        if hub.stall is None or not hub.has_passed:
            return ""
        is_whole = all(own.ended and own.ended.came_to for own in hub.ranks)
        ranks = tuple(RankRun(trace=own.last_trace) for own in hub.ranks)
        passed = Played(Run("sim", ranks), (), (), hub.passed_stall, is_whole)
        return "" if is_deadlock(passed) else unknown_stall(hub.stall)
