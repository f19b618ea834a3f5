"""Ranks take turns; a deadlock, a hang and an endless run end with the waits of each rank."""

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from syncverify.errors import RunEndedError
from syncverify.sim.turns.scheduler import RankThread, Scheduler
from syncverify.sim.turns.stalls import Position, Stall, Wait, deadlock
from syncverify.trace.source_lines import shown_path


class World:
    """A scheduler and ranks that only talk about turns."""

    def __init__(self, num_ranks: int, hang_timeout_seconds: float = 5.0) -> None:
        self.log: list[str] = []
        self.scheduler = Scheduler(
            num_ranks,
            progress=lambda: len(self.log),
            hang_timeout_seconds=hang_timeout_seconds,
        )

    def run(
        self, program: Callable[[int], None]
    ) -> tuple[list[RankThread], Stall | None]:
        threads, stall = self.scheduler.run(program)
        return list(threads), stall

    def say(self, rank: int, word: str) -> None:
        self.log.append(f"{rank}{word}")

    def wait_for(self, rank: int, word: str) -> None:
        """Block until another rank has said something."""
        word_of_rank = f"{rank}{word}"
        self.scheduler.block_until(
            lambda: word_of_rank in self.log,
            Wait(f"waiting for {word_of_rank!r}", lambda: (rank,), word_of_rank),
        )


def test_what_cleanup_raises_is_not_taken_for_the_cause() -> None:
    world = World(2)
    failure = ValueError("mine")

    def program(rank: int) -> None:
        if rank == 1:
            raise failure
        try:
            world.wait_for(1, "never")
        finally:
            raise KeyError("bucket in flight")

    threads, _ = world.run(program)
    assert threads[1].error is failure
    assert isinstance(threads[0].error, RunEndedError)


def test_an_ended_rank_that_swallows_the_end_gets_no_further() -> None:
    world = World(2)

    def program(rank: int) -> None:
        try:
            world.wait_for(1 - rank, "never")
        except BaseException:  # noqa: BLE001  # a subject may do this
            world.scheduler.yield_turn()

    threads, stall = world.run(program)
    assert stall is not None
    assert all(isinstance(thread.error, RunEndedError) for thread in threads)
    assert not any(thread.thread.is_alive() for thread in threads)


@pytest.mark.slow
def test_progress_buys_a_rank_more_time() -> None:
    """One that records events is slow, not stuck."""
    world = World(1, hang_timeout_seconds=0.05)
    pace = threading.Event()

    def program(rank: int) -> None:
        for _ in range(20):
            pace.wait(0.02)
            world.say(rank, "still here")

    _, stall = world.run(program)
    assert stall is None
    assert len(world.log) == 20


@pytest.mark.slow
def test_a_rank_that_returns_while_its_hang_is_looked_for_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, ends = World(1, hang_timeout_seconds=0.05), threading.Event()

    def look(_window: float) -> bool:
        ends.set()
        world.scheduler._ranks[0].thread.join()
        return True

    monkeypatch.setattr(world.scheduler._silence, "shows_a_hang", look)
    _, stall = world.run(lambda _rank: ends.wait())
    assert stall is None


BUILDS = """
import time
print("builds", flush=True)
while time.process_time() < 1.0:
    pass
"""


@pytest.mark.long
def test_a_rank_that_waits_for_a_process_that_sleeps_hangs() -> None:
    world = World(1, hang_timeout_seconds=0.05)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as asleep:
        _, stall = world.run(lambda _rank: asleep.wait())
        assert stall.kind == "never_returns"
        asleep.kill()


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="other kernels show no children")
def test_a_hang_beside_a_process_that_spins_ends_at_the_bound() -> None:
    """The process is of an earlier scenario, and nobody waits for it."""
    world, lock = World(1, hang_timeout_seconds=0.05), threading.Lock()
    spin = [sys.executable, "-S", "-c", BUILDS.replace("1.0", "60")]
    with lock, subprocess.Popen(spin) as spins:
        _, stall = world.run(lambda _rank: lock.acquire())
        assert stall.kind == "never_returns"
        assert spins.poll() is None
        spins.kill()


def test_polling_without_an_end_ends_at_the_bound() -> None:
    def play() -> tuple[Stall | None, int]:
        scheduler = Scheduler(2, progress=lambda: 0, max_steps_per_rank=50)
        turns = 0

        def program(rank: int) -> None:
            nonlocal turns
            while rank == 0:
                turns += 1
                scheduler.yield_turn(Wait("a work", lambda: (1,), "a work"))

        _, stall = scheduler.run(program)
        return stall, turns

    first, turns = play()
    assert (first.kind, first.ranks, turns) == ("step_bound", (0,), 101)
    assert first.details[0].startswith(
        f"rank 0: polls for rank 1 in a work; polls at {shown_path(__file__)}:"
    )
    assert first.details[1] == "rank 1: has finished"
    assert play() == (first, turns)


def test_a_rank_that_swallows_the_bound_does_not_outlive_it() -> None:
    scheduler = Scheduler(1, progress=lambda: 0, max_steps_per_rank=50)

    def program(_rank: int) -> None:
        for _ in range(200):
            with suppress(BaseException):
                scheduler.count_step()

    _, stall = scheduler.run(program)
    assert stall.kind == "step_bound"


def waits(rank: int, *missing: int) -> Position:
    return Position(rank, False, Wait(f"op{rank}", lambda: missing, f"op{rank}"))


def test_circle_is_reported_in_its_order_from_its_first_rank() -> None:
    stall = deadlock([waits(0, 2), waits(1, 0), waits(2, 3), waits(3, 2)])
    assert stall.ranks == (0, 2, 3)
    assert stall.details[-1] == "wait-for cycle: rank 2 -> rank 3 -> rank 2"


def test_waiting_for_one_that_has_finished_is_no_circle() -> None:
    stall = deadlock([waits(0, 1), waits(1, 0, 2), Position(2, True, None)])
    assert stall.details[-1] == "rank 2: has finished"
    assert stall.ranks == (0, 1, 2)
