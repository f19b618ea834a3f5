"""The measures of the harness, each with its peer and its target."""

import functools
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from studies.benchmarks.harness.players import (
    judge,
    play_on,
    play_plain,
    play_recorded,
    play_simulated,
    play_spawned,
    play_threaded,
    seconds_of_cores,
)
from studies.benchmarks.harness.scenarios import drawn, four_ranks, subject, three_axes
from studies.benchmarks.measure import Measure, ratio, speedup, summary
from studies.benchmarks.rounds import Rounds, Times, take_turns, timed
from syncverify.playing.fake import FakeBackend
from syncverify.playing.gloo import GlooBackend
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario

SIM = "sim, judged"
THREADED = "threaded group"
SPAWNED = "spawned gloo"
WARM = "warm gloo"
LIMIT = "plain torch"
RECORDED = "sim, recorded"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one run.

    Attributes:
        rounds: Rounds of a measure that takes a fraction of a second.
        slow_rounds: Rounds of a measure that takes seconds; at least 2, for a spread.
        spawn_rounds: Rounds of the measure that starts processes; its times vary most.
        sim_edge: Number of ranks along each of three axes on `sim`.
        fake_edge: Number of ranks along each of three axes on `fake`.
        num_drawn: Number of scenarios that are drawn.
    """

    rounds: int
    slow_rounds: int = 3
    spawn_rounds: int = 9
    sim_edge: int = 4
    fake_edge: int = 16
    num_drawn: int = 50


SMOKE = Sizes(
    rounds=2, slow_rounds=2, spawn_rounds=2, sim_edge=1, fake_edge=1, num_drawn=4
)


def measure_threaded(sizes: Sizes) -> list[Measure]:
    """Compare wall time with that of torch's threaded process group."""
    scenarios, ours = four_ranks(), subject()
    contestants = {
        SIM: timed(lambda: play_simulated(scenarios, ours)),
        THREADED: timed(lambda: play_threaded(scenarios, ours)),
    }
    times = take_turns(contestants, Rounds(sizes.rounds, warm_up=2))
    return [ratio(("sim_vs_threaded",), times, SIM, THREADED, target=1.25)]


def measure_spawned(sizes: Sizes) -> list[Measure]:
    """Compare scenarios a second with those of processes that live for one scenario."""
    scenarios, ours = four_ranks(), subject()
    contestants = {
        SIM: timed(lambda: play_simulated(scenarios, ours)),
        SPAWNED: timed(lambda: play_spawned(scenarios[:1], ours)),
    }
    times = take_turns(contestants, Rounds(sizes.spawn_rounds, warm_up=1))
    times[SIM] = [seconds / len(scenarios) for seconds in times[SIM]]
    return [speedup(("sim_vs_spawned_gloo",), times, SIM, SPAWNED, target=50)]


def measure_warm(sizes: Sizes) -> list[Measure]:
    """Compare CPU time with that of worker processes that stay, all processes together."""
    scenarios, ours = four_ranks(), subject()
    with closing(GlooBackend()) as gloo:
        times = _core_seconds(
            {
                SIM: lambda: play_simulated(scenarios, ours),
                WARM: lambda: play_on(gloo, scenarios, ours),
            },
            Rounds(sizes.rounds, warm_up=2),
        )
    return [ratio(("core_seconds_vs_warm_gloo",), times, SIM, WARM, target=1.0)]


def measure_drawn(sizes: Sizes) -> list[Measure]:
    """Compare the CPU time of judged scenarios with that of warm workers and of the limit.

    The scenarios are those that a search draws. One more contestant plays them without a
    judgement: the difference is the cost of the judge.
    """
    scenarios, ours = drawn(sizes.num_drawn), subject()
    with closing(GlooBackend()) as gloo:
        times = _core_seconds(
            {
                SIM: lambda: play_simulated(scenarios, ours),
                RECORDED: lambda: play_recorded(scenarios, ours),
                WARM: lambda: play_on(gloo, scenarios, ours),
                LIMIT: lambda: play_plain(scenarios),
            },
            Rounds(sizes.slow_rounds, warm_up=1),
        )
    return [
        ratio(("drawn_vs_warm_gloo",), times, SIM, WARM, target=1.0),
        ratio(("drawn_vs_limit",), times, SIM, LIMIT, target=13.0),
        ratio(("recorded_vs_limit",), times, RECORDED, LIMIT, target=13.0),
    ]


def _core_seconds(steps: dict[str, Callable[[], object]], rounds: Rounds) -> Times:
    """Measure the CPU time of contestants that take turns, all processes together."""
    contestants = {
        name: functools.partial(seconds_of_cores, step) for name, step in steps.items()
    }
    return take_turns(contestants, rounds)


def measure_large(sizes: Sizes) -> list[Measure]:
    """Time a scenario on meshes of three axes with more ranks than this machine has cores."""
    cube, wide = three_axes(sizes.sim_edge), three_axes(sizes.fake_edge)
    return [
        _wall_seconds("sim_cube_seconds", SimBackend(), cube, sizes, target=3.0),
        _wall_seconds("fake_cube_seconds", FakeBackend(), wide, sizes, target=5.0),
    ]


def _wall_seconds(
    key: str,
    backend: SimBackend | FakeBackend,
    scenario: Scenario,
    sizes: Sizes,
    *,
    target: float,
) -> Measure:
    """Time a play and its judgement, `slow_rounds` times."""
    ours = subject()
    spent: list[float] = []
    for _ in range(sizes.slow_rounds):
        start = time.perf_counter()
        judge(scenario, backend.run(scenario, ours), ours)
        spent.append(time.perf_counter() - start)
    times = {backend.name: spent}
    return summary((key,), spent, times, peer="alone", target=target, unit="s")
