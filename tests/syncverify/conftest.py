"""Simulated ranks for tests that care about collectives, not about scenarios."""

from collections.abc import Callable
from typing import Any

import pytest

from syncverify.sim.machine import SimulatedMachine


@pytest.fixture
def on_ranks() -> Callable[[int, Callable[[int], Any]], list[Any]]:
    """Return a function that runs a program and returns the result of each simulated rank."""

    def run(num_ranks: int, program: Callable[[int], Any]) -> list[Any]:
        results: list[Any] = [None] * num_ranks

        def play(rank: int) -> None:
            results[rank] = program(rank)

        machine = SimulatedMachine(num_ranks)
        threads, stall = machine.run(play)
        for thread in threads:
            if isinstance(thread.error, Exception):
                raise thread.error
        assert stall is None, stall
        assert machine.world.mismatch is None, machine.world.mismatch
        return results

    return run
