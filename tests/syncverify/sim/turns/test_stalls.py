"""The description of a stalled world's waits."""

from syncverify.sim.turns.stalls import Position, Stall, Wait, deadlock, endless
from syncverify.trace.source_lines import CodeLine, SourceLine


def waits(rank: int, *missing: int, line: str = "") -> Position:
    return Position(rank, False, Wait(f"op{rank}", lambda: missing, f"op{rank}"), line)


def finished(rank: int) -> Position:
    return Position(rank, True, None)


def test_circle_is_reported_in_its_order_from_its_first_rank() -> None:
    stall = deadlock([waits(0, 2), waits(1, 0), waits(2, 3), waits(3, 2)])
    assert stall.ranks == (0, 2, 3)
    assert stall.details == (
        "rank 0: waits for rank 2 in op0",
        "rank 1: waits for rank 0 in op1",
        "rank 2: waits for rank 3 in op2",
        "rank 3: waits for rank 2 in op3",
        "wait-for cycle: rank 2 -> rank 3 -> rank 2",
    )


def test_waiting_for_one_that_has_finished_is_no_circle() -> None:
    stall = deadlock([waits(0, 1), waits(1, 0, 2), finished(2)])
    assert stall.details[-1] == "rank 2: has finished"
    assert stall.ranks == (0, 1, 2)


SPINS, POLLS = SourceLine("a.py", 1, "f"), SourceLine("b.py", 2, "g")


def test_waiting_for_nobody_in_particular_is_no_circle() -> None:
    assert deadlock([waits(0)]) == Stall(
        "deadlock", (), ("rank 0: waits for nobody in op0",)
    )


def test_endless_run_names_the_ranks_that_still_move() -> None:
    running = Position(3, False, None, CodeLine(SPINS, "go()"))
    positions = [
        waits(0, 2, line=CodeLine(POLLS, "poll()")),
        waits(1, 0),
        finished(2),
        running,
    ]
    assert endless(positions, frozenset({1})) == Stall(
        "step_bound",
        (0, 3),
        (
            "rank 0: polls for rank 2 in op0; polls at b.py:2 in g: poll()",
            "rank 1: waits for rank 0 in op1",
            "rank 2: has finished",
            "rank 3: goes on at a.py:1 in f: go()",
        ),
        (POLLS, SPINS),
    )
