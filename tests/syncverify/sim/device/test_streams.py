"""Virtual streams and events order the same work as CUDA's."""

import pytest
import torch

from syncverify.faces.simulation.simulate import simulate


def two_streams() -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    return torch.cuda.Stream(), torch.cuda.Stream()


def test_streams_are_named_in_order_of_creation_and_compare_by_queue(traced) -> None:
    def program(_: int) -> None:
        one, other = two_streams()
        assert [one.name, other.name] == ["stream 1", "stream 2"]
        assert torch.cuda.current_stream() == torch.cuda.default_stream() != one
        with torch.cuda.stream(one):
            assert torch.cuda.current_stream() == one
            assert {torch.cuda.current_stream(): 1}[one] == 1
        assert torch.cuda.Stream(device="cpu", priority=-1).priority == -1

    traced(program)


def test_contexts_nest_and_end_even_after_an_error(traced) -> None:
    def program(_: int) -> None:
        one, other = two_streams()
        with torch.cuda.stream(one):
            with pytest.raises(ValueError, match="x"), torch.cuda.stream(other):
                raise ValueError("x")
            with torch.cuda.stream(None):
                assert torch.cuda.current_stream() == one
            with other:
                assert torch.cuda.current_stream() == other
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
        torch.cuda.set_stream(one)
        assert torch.accelerator.current_stream() == one
        assert torch.get_device_module("cpu").current_stream() == one

    traced(program)


def test_an_event_stands_for_its_last_record(lines_of) -> None:
    def program(_: int) -> None:
        one, other = two_streams()
        event = torch.cuda.Event(enable_timing=True)
        event.wait(one)  # never recorded: orders nothing
        event.synchronize()
        assert event.query()
        event.record(one)
        other.wait_event(event)
        start = one.record_event(torch.cuda.Event(enable_timing=True))
        with torch.cuda.stream(other):
            event.record()
        event.wait()
        event.synchronize()
        assert start.elapsed_time(event) > 0

    assert lines_of(program) == [
        "mark 1 in stream 1",
        "stream 2 waits for 1",
        "mark 2 in stream 1",
        "mark 3 in stream 2",
        "default waits for 3",
        "host waits for 3",
        "host waits for 2",  # an answer of `elapsed_time`, as one of `query`
    ]


def test_elapsed_time_refuses_as_torch_does(traced) -> None:
    def program(_: int) -> None:
        timed = torch.cuda.Event(True)
        with pytest.raises(ValueError, match="enable_timing=True"):
            timed.elapsed_time(torch.cuda.Event())
        with pytest.raises(ValueError, match="must be recorded"):
            timed.elapsed_time(torch.Event(enable_timing=True))

    traced(program)


def elapsed_without_a_wait(_: int) -> bool:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.ones(4, device="cuda").add_(1)
    end.record()
    return start.elapsed_time(end) > 0


def elapsed_after_a_wait(_: int) -> bool:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) > 0


def test_a_time_of_unfinished_events_is_an_error_in_some_timing() -> None:
    found = simulate(elapsed_without_a_wait, 1, schedules="all").violations
    assert [each.violation.cause for each in found] == ["raised_RuntimeError"]
    right = simulate(elapsed_after_a_wait, 1, schedules="all")
    assert right.is_right
    assert right.num_runs == 1
