"""How much freed memory `record_stream` keeps from being used again."""

import pytest

from syncverify.judge.ordering.held_memory import HeldMemory, held_memory
from tests.syncverify.judge.ordering.micro_traces import traces

USE_A = "r a[0:8] side; free a*64 default side;"
USE_B = "r b[0:8] side; free b*16 default side;"
NONE, A, PILE = (0, 0, 0), (1, 64, 64), (2, 80, 64)
# Records of a host that waits for a stream, as `.item()` does.
SIDE_IS_DONE = "mark m side; host m;"
DEFAULT_IS_DONE = "mark n default; host n;"
BOTH = "r a[0:8] side; r a[0:8] third; free a*64 default side third;"
BEHIND = "w c[0:8] third; wait side third; free a*64 default side;"
AUTOGRAD = "r {0}[0:8] side; free {0}*64 default engine side;"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(USE_A, A, id="one"),
        pytest.param(USE_A + USE_B, PILE, id="the host runs ahead"),
        pytest.param(USE_A + SIDE_IS_DONE + USE_B, A, id="stream.synchronize()"),
        pytest.param(USE_B + SIDE_IS_DONE + USE_A, A, id="the larger comes later"),
        pytest.param(USE_A + "wait default side;" + USE_B, PILE, id="a stream waits"),
        pytest.param(USE_A + DEFAULT_IS_DONE + USE_B, PILE, id="another stream"),
        pytest.param(USE_A + "wait default side;" + DEFAULT_IS_DONE + USE_B, A,
            id="one that waited"),
        pytest.param("mark m side;" + USE_A + "host m;" + USE_B, PILE, id="an old event"),
        pytest.param("r a[0:8] side; mark m side; host m; free a*64 default side;", NONE,
            id="freed when the host knows"),
        pytest.param(
            "r a[0:8] side; mark m side; host m; r c[0:8] side; free a*64 default side", A,
            id="the stream has more to do"),
        pytest.param(BEHIND + "mark m third; host m;" + USE_B, A, id="behind another"),
        pytest.param("mark m side; " + BEHIND + "host m;" + USE_B, PILE, id="before it"),
        pytest.param(BOTH, A, id="two streams"),
        pytest.param(BOTH + SIDE_IS_DONE + USE_B, PILE, id="one of two is done"),
        pytest.param(BOTH + SIDE_IS_DONE + "mark n third; host n;" + USE_B, A,
            id="both are done"),
        pytest.param("r a[0:8] side; wait default side; free a*64 default;", NONE, id="not recorded"),
        pytest.param("r a[0:8] default; free a*64 default default;", NONE, id="its own stream"),
        pytest.param("free a*64 default side;", NONE, id="idle stream"),
        pytest.param("r a[0:8] side; free a default side;", NONE, id="no bytes"),
        pytest.param(AUTOGRAD.format("a") + AUTOGRAD.format("b"), NONE, id="recorded by autograd"),
    ],
)  # fmt: skip
def test_blocks_are_held_until_the_host_waits(
    program: str, expected: tuple[int, int, int]
) -> None:
    assert most(program) == expected


def most(*programs: str) -> tuple[int, int, int]:
    held = held_memory(traces(*programs))
    return held.num_blocks, held.num_bytes, held.largest


def test_the_worst_rank_and_step_are_named() -> None:
    first = "call backward 0 0;" + USE_B + SIDE_IS_DONE
    second = "call backward 1 0;" + USE_A
    expected = HeldMemory(2, 80, 64, rank=1, step=1)
    assert held_memory(traces(first + second, second + USE_B)) == expected
    assert held_memory(traces(first, first)) == HeldMemory(1, 16, 16, rank=0, step=0)


def test_another_rank_may_tell_the_host() -> None:
    """The host waits for `t`. Rank 1 starts `t` after `s`, and `s` starts after the use."""
    sent = (
        USE_A + "reduce s c[0:8] side; reduce t d[0:8] default; mark n default; host n;"
    )
    waits = "reduce s c[0:8] side; wait default side; reduce t d[0:8] default;"
    assert most(sent + USE_B, waits) == A
    assert most(sent + USE_B, waits.replace("wait default side;", "")) == PILE
