"""The actions of a step: the effect of each event on calls and observations."""

from dataclasses import replace

import pytest

from syncverify.program.training_program import (
    Action,
    Backward,
    Call,
    Change,
    Drop,
    Make,
    Observe,
    Recover,
    Replace,
    training_program,
)
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

PLAIN = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("p", (2,), ("R",)),), (2, 2), 64
)


def in_short(actions: tuple[Action, ...]) -> list[str]:
    return [*map(word, actions)]


def word(action: Action) -> str:
    match action:
        case Call():
            return " ".join([action.method, *map(str, action.arguments)])
        case Backward():
            fails = " fails" if action.fails else ""
            return f"backward {action.micro_batch}{fails}"
        case Observe():
            return action.point
        case Recover():
            return f"{action.call.method} or {action.call.otherwise}"
        case Make() | Drop() | Replace():
            return repr(action)
        case Change():
            return action.kind
    return type(action).__name__.lower()


BACKWARDS = ["backward 0", "accumulated", "backward 1"]
FINISH = ["wait", "reduced", "update", "zero_grad", "zeroed"]


@pytest.mark.parametrize(
    ("event", "actions"),
    [
        ("plain", [*BACKWARDS, *FINISH]),
        ("wait_twice", [*BACKWARDS, "wait", *FINISH]),
        ("zero_before_wait", [*BACKWARDS, "zero_grad", "zeroed"]),
        ("empty_step", FINISH),
        ("tail", ["backward 0", "accumulated", "flush", *FINISH]),
        ("set_to_none", [*BACKWARDS, *FINISH, "Drop(every=1, first=0)"]),
        ("set_every_other_to_none", [*BACKWARDS, *FINISH, "Drop(every=2, first=0)"]),
        ("freeze", ["freeze", *BACKWARDS, *FINISH]),
        ("cast_before_zero", [*BACKWARDS, *FINISH[:3], "cast", *FINISH[3:]]),
        ("rebind", [*BACKWARDS, *FINISH, "unbind", "bind"]),
        (
            "rebind_announced/unbound",
            [*BACKWARDS, *FINISH, "unbind", "set_required_accumulations 2", "bind"],
        ),
        ("remade", [*BACKWARDS, *FINISH, "unbind", "Make(step=1, count=2)", "bind"]),
        (
            "unbind_early",
            [*BACKWARDS, "unbind", "Drop(every=1, first=0)", "bind", "zeroed"],
        ),
        (
            "raise_in_backward",
            [*BACKWARDS[:2], "backward 1 fails", "reset or zero_grad", "zeroed"],
        ),
    ],
)
def test_event_decides_the_actions_of_its_step(event: str, actions: list[str]) -> None:
    scenario = replace(PLAIN, events=(event, "wait_twice"))
    step = training_program(scenario, takes_count=True).steps[0]
    assert in_short((*step.before, *step.within, *step.after)) == actions


@pytest.mark.parametrize("takes_count", [True, False])
def test_count_is_given_once_before_the_first_step(*, takes_count: bool) -> None:
    start = training_program(PLAIN, takes_count=takes_count).start
    made = [f"Make(step=0, count={2 if takes_count else None})", "bind"]
    announced = [] if takes_count else ["set_required_accumulations 2"]
    assert in_short(start) == made + announced


@pytest.mark.parametrize(
    ("accumulations", "announced"),
    [((1, 1, 1), [False, False, True]), ((1, 2, 2), [False, True, True])],
)
def test_count_that_stays_is_announced_before_even_steps(
    accumulations: tuple[int, ...], announced: list[bool]
) -> None:
    scenario = replace(PLAIN, accumulations=accumulations)
    steps = training_program(scenario, takes_count=True).steps
    assert [isinstance(step.within[0], Call) for step in steps] == announced
