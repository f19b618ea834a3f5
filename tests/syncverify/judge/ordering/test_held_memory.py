"""How much freed memory `record_stream` keeps from being used again."""

import pytest

from syncverify.judge.ordering.held_memory import HeldMemory, held_memory
from tests.syncverify.judge.ordering.micro_traces import traces

USE_A = "r a[0:8] side; free a*64 default side;"
USE_B = "r b[0:8] side; free b*16 default side;"
PILE = (2, 80, 64)
# Records of a host that waits for a stream, as `.item()` does.
SIDE_IS_DONE = "mark m side; host m;"
DEFAULT_IS_DONE = "mark n default; host n;"


def most(*programs: str) -> tuple[int, int, int]:
    held = held_memory(traces(*programs))
    return held.num_blocks, held.num_bytes, held.largest


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (USE_A, (1, 64, 64)),
        (USE_A + USE_B, PILE),
        (USE_A + SIDE_IS_DONE + USE_B, (1, 64, 64)),
        (USE_B + SIDE_IS_DONE + USE_A, (1, 64, 64)),
        (USE_A + "wait default side;" + USE_B, PILE),
        (USE_A + DEFAULT_IS_DONE + USE_B, PILE),
        (USE_A + "wait default side;" + DEFAULT_IS_DONE + USE_B, (1, 64, 64)),
        ("mark m side;" + USE_A + "host m;" + USE_B, PILE),
        ("r a[0:8] side; mark m side; host m; free a*64 default side;", (0, 0, 0)),
        (
            "r a[0:8] side; mark m side; host m; r c[0:8] side; free a*64 default side",
            (1, 64, 64),
        ),
    ],
    ids=[
        "one", "two, and the host runs ahead", "stream.synchronize() between",
        "the larger comes later", "only a stream waits",
        "the host waits for another stream", "the host waits for one that waited",
        "event.synchronize() of an event before the use", "freed when the host knows",
        "the stream has got more to do before the free",
    ],
)  # fmt: skip
def test_blocks_are_held_until_the_host_waits(
    program: str, expected: tuple[int, int, int]
) -> None:
    assert most(program) == expected


def test_a_stream_may_itself_have_to_wait_for_others() -> None:
    behind = "w c[0:8] third; wait side third; free a*64 default side;"
    assert most(behind + "mark m third; host m;" + USE_B) == (1, 64, 64)
    assert most("mark m side; " + behind + "host m;" + USE_B) == PILE


def test_each_recorded_stream_has_to_be_done() -> None:
    both = "r a[0:8] side; r a[0:8] third; free a*64 default side third;"
    assert most(both) == (1, 64, 64)
    assert most(both + SIDE_IS_DONE + USE_B) == PILE
    assert most(both + SIDE_IS_DONE + "mark n third; host n;" + USE_B) == (1, 64, 64)


@pytest.mark.parametrize(
    "program",
    [
        "r a[0:8] side; wait default side; free a*64 default;",
        "r a[0:8] default; free a*64 default default;",
        "free a*64 default side;",
        "r a[0:8] side; free a default side;",
        (
            "r a[0:8] side; free a*64 default engine side; r b[0:8] side;"
            "free b*64 default engine side"
        ),
    ],
    ids=[
        "not recorded",
        "recorded where it was allocated",
        "idle stream",
        "no bytes",
        "recorded by autograd",
    ],
)
def test_memory_that_is_free_at_once_is_not_held(program: str) -> None:
    assert most(program) == (0, 0, 0)


def test_the_worst_rank_and_step_are_named() -> None:
    first = "call backward 0 0;" + USE_B + SIDE_IS_DONE
    second = "call backward 1 0;" + USE_A
    expected = HeldMemory(2, 80, 64, rank=1, step=1)
    assert held_memory(traces(first + second, second + USE_B)) == expected
    assert held_memory(traces(first, first)) == HeldMemory(1, 16, 16, rank=0, step=0)
    again = "call backward 1 0;" + USE_B.replace("b", "c") + SIDE_IS_DONE
    assert held_memory(traces(first + again)).step == 0


def test_another_rank_may_tell_the_host() -> None:
    """The host waits for `t`. Rank 1 starts `t` after `s`, and `s` starts after the use."""
    sent = (
        USE_A + "reduce s c[0:8] side; reduce t d[0:8] default; mark n default; host n;"
    )
    waits = "reduce s c[0:8] side; wait default side; reduce t d[0:8] default;"
    assert most(sent + USE_B, waits) == (1, 64, 64)
    assert most(sent + USE_B, waits.replace("wait default side;", "")) == PILE
