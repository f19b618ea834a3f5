"""A schedule takes the place of timing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from syncverify.scenario.schedule import Schedule
from syncverify.sim.machine import SimulatedMachine
from syncverify.sim.turns.decisions import (
    MAX_NUM_REFUSALS,
    NUM_LONG_REFUSALS,
    NUM_VERY_LONG_REFUSALS,
    Decisions,
    SchedulePolicy,
)
from syncverify.sim.turns.timings import PriorityRuns


class Stubborn:
    """Says "not yet" as often as it may, and goes on with the default rank."""

    is_done = False
    num_answers = 2

    def choose_rank(self, point: Any) -> int:
        return int(point.options[0])

    def choose_answer(self, num_options: int) -> int:
        return num_options - 1


def on_two_ranks(
    program: Callable[[int], Any], decisions: Decisions
) -> tuple[list[Any], Decisions]:
    results: list[Any] = [None, None]

    def play(rank: int) -> None:
        results[rank] = program(rank)

    threads, stall = SimulatedMachine(2, decisions=decisions).run(play)
    assert stall is None
    assert [thread.error for thread in threads] == [None, None]
    return results, decisions


def tickets(_rank: int) -> int:
    return int(c10d._get_default_store().add("tickets", 1))


@pytest.mark.parametrize(
    ("choices", "expected"), [((), [1, 2]), ((1,), [2, 1]), ((0, 1), [2, 1])]
)
def test_who_is_first_is_up_to_the_schedule(
    choices: tuple[int, ...], expected: list[int]
) -> None:
    decisions = Decisions(SchedulePolicy(Schedule(choices)))
    assert on_two_ranks(tickets, decisions)[0] == expected
    assert decisions.schedule == Schedule(choices)


def test_not_yet_is_answered_at_most_max_num_refusals_times() -> None:
    def program(_rank: int) -> tuple[int, float]:
        tensor = torch.ones(1)
        work = dist.all_reduce(tensor, async_op=True)
        dist.barrier()  # all have arrived
        refusals = 0
        while not work.is_completed():
            assert tensor.item() == 1
            refusals += 1
        return refusals, tensor.item()

    stubborn, decisions = on_two_ranks(program, Decisions(Stubborn()))
    assert stubborn == [(MAX_NUM_REFUSALS, 2.0)] * 2
    assert on_two_ranks(program, Decisions())[0] == [(0, 2.0)] * 2
    replayed = Decisions(SchedulePolicy(decisions.schedule))
    assert on_two_ranks(program, replayed)[0] == stubborn


@pytest.mark.parametrize(
    ("answers", "delay"), [(3, NUM_LONG_REFUSALS), (4, NUM_VERY_LONG_REFUSALS)]
)
def test_a_drawn_schedule_may_delay_an_answer_for_long(
    answers: int, delay: int
) -> None:
    def program(_rank: int) -> int:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        dist.barrier()  # all have arrived
        return asked(work.is_completed)

    class Delays(Stubborn):
        num_answers = answers

    delayed, decisions = on_two_ranks(program, Decisions(Delays()))
    # A run has one very long delay at most.
    assert sorted(delayed) == [NUM_LONG_REFUSALS + 1, delay + 1]
    replayed = Decisions(SchedulePolicy(decisions.schedule))
    assert on_two_ranks(program, replayed)[0] == delayed


def asked(query: Callable[[], bool]) -> int:
    """Ask until the answer is yes; count how often it was not."""
    refusals = 0
    while not query():
        refusals += 1
    return refusals


def test_an_event_may_not_show_yet() -> None:
    def program(_rank: int) -> tuple[int, int, int]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        event = side.record_event()
        return asked(event.query), asked(event.query), asked(side.query)

    stubborn, decisions = on_two_ranks(program, Decisions(Stubborn()))
    assert stubborn == [(MAX_NUM_REFUSALS, 0, 0)] * 2
    assert "query" in {decision.kind for decision in decisions.taken}
    assert on_two_ranks(program, Decisions())[0] == [(0, 0, 0)] * 2
    replayed = Decisions(SchedulePolicy(decisions.schedule))
    assert on_two_ranks(program, replayed)[0] == stubborn


def test_a_stream_may_not_look_idle_yet() -> None:
    def program(_rank: int) -> tuple[int, int]:
        side = torch.cuda.Stream()
        fresh = asked(side.query)
        side.wait_stream(torch.cuda.current_stream())
        return fresh, asked(side.query)

    assert (
        on_two_ranks(program, Decisions(Stubborn()))[0] == [(0, MAX_NUM_REFUSALS)] * 2
    )


@pytest.mark.parametrize("wait", ["stream", "event", "device", "follower"])
def test_what_the_host_has_waited_for_is_done(wait: str) -> None:
    """No timing tells a host "not yet" about work that the host knows to be over."""

    def program(_rank: int) -> tuple[bool, bool]:
        side, follower = torch.cuda.Stream(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        event = side.record_event()
        follower.wait_event(event)
        {
            "stream": side.synchronize,
            "event": event.synchronize,
            "device": torch.cuda.synchronize,
            "follower": follower.synchronize,
        }[wait]()
        return event.query(), side.query()

    assert on_two_ranks(program, Decisions(Stubborn()))[0] == [(True, True)] * 2


def test_done_is_not_said_before_all_arrived() -> None:
    def program(rank: int) -> bool:
        if rank == 1:
            c10d._get_default_store().get("asked")
        work = dist.all_reduce(torch.ones(1), async_op=True)
        is_done = work.is_completed()
        c10d._get_default_store().set("asked", "")
        work.wait()
        return is_done

    assert on_two_ranks(program, Decisions())[0][0] is False


def test_a_communicator_completes_in_order() -> None:
    """Once a later work is done, the earlier ones are done too, under every schedule."""

    def program(_rank: int) -> tuple[bool, bool]:
        works = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(2)]
        dist.barrier()
        while not works[1].is_completed():
            pass
        return works[0].is_completed(), works[0].is_completed()

    assert on_two_ranks(program, Decisions(Stubborn()))[0] == [(True, True)] * 2


def test_priorities_are_the_same_for_a_seed_and_differ_between_runs() -> None:
    def schedules(seed: int) -> list[Schedule]:
        runs = PriorityRuns(2, 6).runs(10, seed)
        return [on_two_ranks(tickets, run)[1].schedule for run in runs]

    assert schedules(0) == schedules(0)
    assert len(set(schedules(0))) > 1
