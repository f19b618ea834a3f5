"""Stalls with NCCL, whose `wait()` blocks a stream and not the host.

Note [Hosts that go on]
    On simulated ranks `wait()` blocks the host, since operators run at once and need the
    results. So hosts may stand still that would go on with NCCL. Example: one rank calls
    `all_reduce(); store.set()`, and the other one `store.wait(); all_reduce()`.

    Such a stall is played again, and hosts go on without results where they would stand
    still. A host that then reads a value of a device stops there. The stall is a deadlock with
    NCCL too in these cases:

    - A collective lacks a rank that has finished, in the first play or in the second.
    - All hosts stand still again, and none of them reads a value of a device.
    - Queued work of the devices waits in a circle.

    In all other cases it is not known what NCCL does, and the program is not judged.
"""

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.faces.simulation.program import SimulatedProgram
from syncverify.judge.ordering.device_queues import waits_in_a_circle
from syncverify.playing.play import Played, play
from syncverify.scenario.schedule import Schedule
from syncverify.sim.turns.decisions import Decisions, SchedulePolicy
from syncverify.sim.turns.stalls import Stall
from syncverify.trace.rounds import num_launches
from syncverify.trace.run import Run


def refuse_unknown_stall(
    played: Played, setup: SimulatedProgram, schedule: Schedule
) -> None:
    """Refuse a stall of which it is not known what NCCL does; see Note [Hosts that go on]."""
    stall = played.stall
    if stall is None or stall.is_certain or played.run.fault is None:
        return
    decisions = Decisions(SchedulePolicy(schedule))  # all choices of the play
    passed = play(setup, decisions, passes_stalls=True)
    if not is_deadlock(passed.run, passed.stall, is_whole=passed.is_whole):
        raise EnvironmentNotSupportedError(unknown_stall(stall))


def is_deadlock(run: Run, stall: Stall | None, *, is_whole: bool) -> bool:
    """Tell whether a run in which hosts go on shows a deadlock; in a whole one all ranks return."""
    traces = [each.trace for each in run.ranks]
    # A rank never issued a collective that others have issued.
    lacks = any(number < len(key.ranks) for key, number in num_launches(traces).items())
    if is_whole and lacks:
        return True
    if stall is not None and stall.kind == "deadlock" and stall.is_certain:
        return True
    return waits_in_a_circle(traces)


def unknown_stall(stall: Stall) -> str:
    """Say why ranks that stand still are not judged."""
    return (
        "ranks stand still where wait() blocks the host, as with gloo; with NCCL it blocks a "
        f"stream alone, and what comes then is not known ({'; '.join(map(str, stall.details))})"
    )
