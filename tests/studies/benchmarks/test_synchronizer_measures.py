"""How rounds become numbers, and numbers verdicts and tables."""

import pytest

from studies.benchmarks.measure import Measure, ratio, speedup
from studies.benchmarks.report import Machine, Report
from studies.benchmarks.rounds import Rounds, slowest_rank, take_turns


def test_contestants_take_turns_in_an_order_that_rotates() -> None:
    order: list[str] = []

    def contestant(name: str) -> float:
        order.append(name)
        return float(len(order))

    contestants = {name: lambda name=name: contestant(name) for name in "abc"}
    times = take_turns(
        contestants, Rounds(count=2, warm_up=1), line_up=lambda: order.append("-")
    )
    assert "".join(order) == "-c-a-b" + "-a-b-c" + "-b-c-a"
    assert times == {"a": [8.0, 18.0], "b": [10.0, 14.0], "c": [12.0, 16.0]}


def test_the_slowest_rank_of_each_round_counts() -> None:
    assert slowest_rank([{"a": [1.0, 5.0]}, {"a": [2.0, 4.0]}]) == {"a": [2.0, 5.0]}


def test_a_ratio_is_taken_round_by_round() -> None:
    times = {"ours": [1.0, 20.0, 3.0], "peer": [2.0, 40.0, 2.0]}
    measure = ratio(("key",), times, "ours", "peer", target=0.5)
    assert measure.value == 0.5
    assert measure.quartiles == (0.5, 1.0)
    assert measure.medians_ms == {"ours": 3000.0, "peer": 2000.0}


@pytest.mark.parametrize(
    ("value", "quartiles", "verdict"),
    [
        (0.8, (0.7, 0.9), "met"),
        (1.2, (1.1, 1.3), "missed"),
        (0.9, (0.8, 1.1), "met, within spread"),
        (1.1, (0.9, 1.2), "missed, within spread"),
        (None, None, "not measured"),
    ],
)
def test_a_verdict_is_honest(
    value: float | None, quartiles: tuple[float, float] | None, verdict: str
) -> None:
    measure = Measure(("key",), "peer", 1.0, value=value, quartiles=quartiles)
    assert measure.verdict == verdict


def test_a_speedup_is_met_from_its_target_on() -> None:
    times = {"ours": [1.0, 2.0, 1.0], "peer": [50.0, 50.0, 70.0]}
    measure = speedup(("key",), times, "ours", "peer", target=50)
    assert measure.value == 50
    assert measure.is_met
    assert not speedup(("key",), times, "ours", "peer", target=51).is_met


def test_a_missing_peer_is_a_null_and_one_line() -> None:
    missing = Measure(("step_vs_d9d",), "d9d", 0.8, note="not installed")
    machine = Machine("2000-01-01", 2, 0.0, "a CPU", "2.13", "3.11")
    report = Report((missing,), machine, num_rounds=20)
    assert report.to_json()["step_vs_d9d"] is None
    assert "| step_vs_d9d | d9d | - | - | 0 | <= 0.8 x | not installed |" in (
        report.markdown().splitlines()
    )
