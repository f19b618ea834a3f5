"""How much is measured, in full and to try the command."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a run measures.

    Attributes:
        rounds: Of measures that take a fraction of a second.
        slow_rounds: Of measures that take seconds; at least 2, for a spread.
        spawn_rounds: Of processes that are started, whose time varies most.
        sim_edge: Ranks along each of three axes, on `sim`.
        fake_edge: The same on `fake`.
        num_accesses: In the trace for the race detector.
    """

    rounds: int
    slow_rounds: int = 3
    spawn_rounds: int = 9
    sim_edge: int = 4
    fake_edge: int = 16
    num_accesses: int = 20_000


SMOKE = Sizes(
    rounds=2, slow_rounds=2, spawn_rounds=2, sim_edge=1, fake_edge=1, num_accesses=100
)
