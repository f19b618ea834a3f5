"""Each wait of subjects with known waits gets its word."""

import functools
from dataclasses import replace
from typing import Any

import pytest

from syncverify.errors import EnvironmentNotSupportedError, UsageError
from syncverify.explain.waits.answers import Answer
from syncverify.explain.waits.exposed_time import Link
from syncverify.explain.waits.finding import WaitSearch, call_here
from syncverify.scenario.replay_token import decode
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from tests.syncverify.explain.waits.waiting_subjects import (
    EndsAtQuery,
    EndsItsProcess,
    FailsInSecondStep,
    KeepsCopies,
    KeepsRecordedCopies,
    RefusedInSecondStep,
    RunsMicroBatches,
    Synchronizes,
    TwoStreams,
    WaitsForLastBucket,
    WaitsForReusedBuffer,
)

pytestmark = pytest.mark.slow
PAIR = MeshSpec((2,), ("dp",))
# The last gradients of backward take long, the first ones come at once.
SPECS = tuple(
    ParameterSpec(f"p{n}", (2,), ("R",), use=use)
    for n, use in enumerate(["many_times", "many_times", "plain", "plain"])
)
SCENARIOS = [Scenario(PAIR, SPECS, (1,), 8), Scenario(PAIR, SPECS, (1, 1), 8)]


def search_of(subject: type[Any]) -> WaitSearch:
    return WaitSearch(resolve(subject), Link(), lambda *_: None, make_calls=call_here)


@functools.cache
def all_answers(subject: type[Any]) -> tuple[Answer, ...]:
    return (*search_of(subject).answers(SCENARIOS),)


def answers_of(subject: type[Any]) -> list[Answer]:
    """List the answers for calls that ran: those of other subjects stand in the same file."""
    return [each for each in all_answers(subject) if each.num_scenarios]


def words(subject: type[Any]) -> dict[tuple[str, str], str]:
    return {
        (each.point.line.function, each.point.kind): each.word
        for each in answers_of(subject)
    }


NEEDED = {("fork", "stream_wait"): "needed", ("join", "stream_wait"): "needed"}


@pytest.mark.long
def test_the_waits_that_two_streams_take_are_needed() -> None:
    found = answers_of(TwoStreams)
    harms = {each.point.line.function: each.harm for each in found if each.harm}
    assert {
        name: (harm.property, harm.is_of_model) for name, harm in harms.items()
    } == {
        "fork": ("reduce_reads_after_accumulation", True),
        "join": ("wait_orders_reads_after_reduce", True),
    }
    for harm in harms.values():
        assert harm.outcome.startswith("gradient of 'p")
        assert harm.observed != harm.expected
    assert len(found) == 2


@pytest.mark.long
def test_a_wait_for_memory_that_is_left_alone_is_superfluous_and_costs_time() -> None:
    by_word = {each.word: each for each in answers_of(WaitsForLastBucket)}
    extra = by_word["superfluous"]
    assert extra.code == "torch.cuda.current_stream().wait_stream(self.comm)"
    assert (extra.point.line.function, extra.num_scenarios) == ("fork", 2)
    assert extra.exposed_microseconds > 0
    assert extra.harm is None


@pytest.mark.long
def test_the_same_wait_is_needed_where_the_buffer_is_used_again() -> None:
    found = words(WaitsForReusedBuffer)
    assert found == {
        **NEEDED,
        ("launch", "stream_wait"): "needed",
        ("launch", "reference"): "needed",  # to the shared buffer, over all steps
    }


@pytest.mark.long
def test_each_kind_of_wait_that_adds_nothing_is_superfluous() -> None:
    assert words(Synchronizes) == {
        ("fork", "stream_wait"): "needed",
        ("join", "stream_wait"): "superfluous",  # beside `synchronize()`
        ("wait", "host_wait"): "superfluous",
        ("wait", "barrier"): "superfluous",
        ("wait", "record_stream"): "superfluous",
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("subject", "word"), [(KeepsCopies, "needed"), (KeepsRecordedCopies, "superfluous")]
)
def test_a_reference_that_is_kept_until_a_wait_has_a_word(
    subject: type[Any], word: str
) -> None:
    """It stands at the last use; `record_stream` does the same."""
    kept = [each for each in answers_of(subject) if each.point.kind == "reference"]
    assert [(each.code, each.word) for each in kept] == [
        ("bucket.buffer.copy_(sent)", word)
    ]


def test_memory_of_the_program_is_no_reference_of_the_subject() -> None:
    """DDP's broadcast is the first use of a parameter, and the program drops it in `move`."""
    moved = Scenario(
        PAIR, SPECS[:1], (1,), 8, events=("move",), launch="bind_on_side_stream"
    )
    search = WaitSearch(resolve("ddp"), Link(), lambda *_: None, names_torch=True)
    search.make_calls = call_here
    kinds = {
        each.point.kind
        for each in search.answers([moved])
        if each.point.line.function == "_sync_params_and_buffers"
    }
    assert kinds == {"work_wait"}


@pytest.mark.long
def test_a_call_that_never_runs_is_undecided() -> None:
    never = [
        each
        for each in all_answers(TwoStreams)
        if each.point.line.function == "never_called"
    ]
    assert [(each.word, each.reason) for each in never] == [("undecided", "never ran")]


def test_a_subject_that_is_wrong_with_all_of_its_waits_is_refused() -> None:
    class NeverForks(TwoStreams):
        def fork(self) -> None:
            pass

    message = (
        "NeverForks violates reduce_reads_after_accumulation with all of its waits"
    )
    with pytest.raises(UsageError, match=message):
        answers_of(NeverForks)


@pytest.mark.long
def test_scenarios_that_break_with_all_waits_are_counted_and_left_out() -> None:
    search = search_of(FailsInSecondStep)
    answers = search.answers(SCENARIOS)
    found = {each.point.line.function: each for each in answers if each.num_scenarios}
    assert [decode(each).scenario for each in search.wrong] == SCENARIOS[1:]
    assert (found["fork"].word, found["fork"].num_scenarios) == ("needed", 1)


@pytest.mark.long
def test_scenarios_that_are_not_simulated_are_counted_and_left_out() -> None:
    search = search_of(RefusedInSecondStep)
    answers = search.answers(SCENARIOS)
    found = {each.point.line.function: each for each in answers if each.num_scenarios}
    assert (found["fork"].word, found["fork"].num_scenarios) == ("needed", 1)
    assert search.played(2, 0).num_not_simulated == 1
    with pytest.raises(EnvironmentNotSupportedError, match="other processes"):
        search_of(RefusedInSecondStep).answers(SCENARIOS[1:])


@pytest.mark.long
def test_waits_of_the_training_program_are_none_of_the_subject() -> None:
    """The forward of the program has more streams, and runs inside of the subject's line."""
    scenario = replace(SCENARIOS[0], launch="parameter_streams")
    found = search_of(RunsMicroBatches).answers([scenario])
    assert {each.point.line.function for each in found if each.num_scenarios} == {
        "fork",
        "join",
    }


@pytest.mark.slow
def test_scenarios_that_break_under_another_schedule_blame_no_wait() -> None:
    """The traces hold, and plays of all schedules break with the call and without it."""
    search = search_of(EndsAtQuery)
    answers = search.answers(SCENARIOS[:1])
    found = {each.point.line.function: each for each in answers if each.num_scenarios}
    assert found["wait"].word == "superfluous"
    assert [decode(each).scenario for each in search.wrong] == SCENARIOS[:1]


@pytest.mark.long
def test_a_play_that_ends_its_process_shows_that_the_wait_is_needed() -> None:
    """In each of two processes; answers of one process and of two are the same."""
    found = [
        WaitSearch(resolve(EndsItsProcess), Link(), lambda *_: None, jobs=jobs)
        for jobs in (1, 2)
    ]
    one, two = (search.answers(SCENARIOS) for search in found)
    assert one == two
    (ended,) = [each for each in one if each.code == "done.synchronize()"]
    assert ended.word == "needed"
    assert (ended.harm.property, ended.harm.cause) == (
        "every_rank_finishes",
        "process_died",
    )
    assert ended.harm.outcome == "the process that plays the ranks ended by signal 11"
