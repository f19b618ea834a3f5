"""Rounds in which contestants take turns, so that other load falls on all of them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# Runs once and returns the seconds of the compared part.
Contestant = Callable[[], float]
# Seconds of each round, by contestant.
Times = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Rounds:
    """Numbers of rounds that are timed, and of rounds before them.

    Attributes:
        count: Rounds that are timed.
        warm_up: Rounds before them. DDP rebuilds its buckets in the second step.
    """

    count: int
    warm_up: int = 5


def timed(step: Callable[[], object]) -> Contestant:
    """Make a contestant from a step; all of the step is timed."""

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

    `line_up` runs untimed before each contestant, so that ranks start together.
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
    """Return the longest time of all ranks, round by round: a step ends with its last rank."""
    return {
        name: [
            max(of_one_round)
            for of_one_round in zip(*(t[name] for t in times_by_rank), strict=True)
        ]
        for name in times_by_rank[0]
    }
