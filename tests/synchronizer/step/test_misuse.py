"""The misuse table: one test for each line."""

from itertools import product
from pathlib import Path

import pytest
import torch

from syncverify import synchronizer
from tests.synchronizer.misuse_table import CALLS, LINES, MESSAGES, STATES, Bench

pytestmark = pytest.mark.usefixtures("two_ranks")


def page_rows() -> list[str]:
    """The table as docs/lifecycle.md shows it: a row for each call, a column a state."""
    cells = {
        (state, call): f"`{MESSAGES[raised].error.__name__}`" if raised else state_after
        for state, call, state_after, raised in LINES
    }
    for state, call, state_after, raised in LINES:
        if raised and state_after != state:
            cells[state, call] += f", {state_after}"
    rows = [["call", *STATES], ["---"] * (len(STATES) + 1)]
    rows += [[f"`{call}`", *(cells[state, call] for state in STATES)] for call in CALLS]
    return [f"| {' | '.join(row)} |" for row in rows]


def test_the_page_shows_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "lifecycle.md"
    shown = [line for line in page.read_text().splitlines() if line.startswith("|")]
    assert shown == page_rows()


def test_the_table_is_complete() -> None:
    assert sorted(line[:2] for line in LINES) == sorted(product(STATES, CALLS))
    raised = {line[-1] for line in LINES}
    assert raised - {None} == {*MESSAGES}


@pytest.mark.parametrize(("state", "call", "state_after", "raised"), LINES)
def test_every_call_does_in_every_state_what_the_table_says(
    state: str, call: str, state_after: str, raised: str | None
) -> None:
    bench = Bench()
    STATES[state](bench)
    assert bench.state() == state
    if raised is None:
        CALLS[call](bench)
    else:
        refusal = MESSAGES[raised]
        with pytest.raises(synchronizer.SynchronizerError) as caught:
            CALLS[call](bench)
        assert type(caught.value) is refusal.error
        assert str(caught.value).splitlines() == refusal.lines()
    assert bench.state() == state_after
    bench.synchronizer.unbind()


@pytest.mark.parametrize("state", STATES)
def test_a_step_succeeds_after_a_reset_in_every_state(state: str) -> None:
    bench = Bench()
    STATES[state](bench)
    bench.synchronizer.reset()
    for _ in range(2):
        bench.backward("a", "b")
    bench.synchronizer.wait()
    for parameter in (bench.a, bench.b):
        assert torch.equal(parameter.grad.to_local(), torch.full((512,), 2.0))
    bench.synchronizer.unbind()
