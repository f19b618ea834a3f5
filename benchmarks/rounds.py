"""Contestants take turns: whatever else the machine does falls on all of them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Runs once and returns the seconds of what is to be compared.
Contestant = Callable[[], float]
# By contestant: seconds of each round.
Times = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often contestants run.

    Attributes:
        count: Rounds that are timed.
        warm_up: Rounds before them. DDP rebuilds its buckets in the second step.
    """

    count: int
    warm_up: int = 5


def timed(step: Callable[[], object]) -> Contestant:
    """Make a contestant of which all is timed."""

    def run() -> float:
        start = time.perf_counter()
        step()
        return time.perf_counter() - start

    return run


def take_turns(
    contestants: Mapping[str, Contestant],
    rounds: Rounds,
    *,
    line_up: Callable[[], object] = lambda: None,
) -> Times:
    """Run every contestant once a round, in an order that rotates.

    Args:
        contestants: By name.
        rounds: How many.
        line_up: Runs before each of them, untimed: ranks start together.

    Returns:
        The seconds of all timed rounds.
    """
    names = list(contestants)
    times: Times = {name: [] for name in names}
    for number in range(-rounds.warm_up, rounds.count):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            line_up()
            seconds = contestants[name]()
            if number >= 0:
                times[name].append(seconds)
    return times


def slowest_rank(times_by_rank: list[Times]) -> Times:
    """Combine the ranks of a run: a step is over when the last rank is through."""
    return {
        name: [
            max(of_one_round)
            for of_one_round in zip(*(t[name] for t in times_by_rank), strict=True)
        ]
        for name in times_by_rank[0]
    }
