"""The plan of a step: effect of each word on micro-batches and on contributions."""

from dataclasses import replace

import pytest

from syncverify.scenario import step_plan
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.features import refusable_features
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec

PLAIN = Scenario(
    MeshSpec((2,), ("dp",)),
    tuple(ParameterSpec(f"p{index}", (2,), ("R",)) for index in range(3)),
    (2, 2),
    64,
)


def with_event(event: str, step: int = 0) -> Scenario:
    events = ["plain", "plain"]
    events[step] = event
    return replace(PLAIN, events=tuple(events))


def with_used(used: str) -> Scenario:
    first, *others = PLAIN.parameters
    return replace(PLAIN, parameters=(replace(first, used=used), *others))


@pytest.mark.parametrize(
    ("event", "count"),
    [
        ("wait_twice", 2),
        ("empty_step", 0),
        ("extra_backward", 3),
        ("missing_backward", 1),
        ("missing_backward/on_odd_ranks", 2),
        ("tail", 1),
        ("raise_in_backward", 2),
    ],
)
def test_an_event_changes_the_number_of_backwards_of_its_step(
    event: str, count: int
) -> None:
    assert step_plan.num_micro_batches(with_event(event), 0) == count
    assert step_plan.num_micro_batches(with_event(event), 1) == 2
    assert step_plan.num_agreed_micro_batches(with_event(event), 0) == 2


@pytest.mark.parametrize(
    ("used", "places"),
    [
        ("always", {(0, 0), (0, 1), (1, 0), (1, 1)}),
        ("never", set()),
        ("not_on_odd_ranks", {(0, 0), (0, 1)}),
        ("not_in_first_micro_batch", {(0, 1), (1, 1)}),
        ("not_in_last_micro_batch", {(0, 0), (1, 0)}),
    ],
)
def test_each_word_names_the_ranks_and_micro_batches_that_use_a_parameter(
    used: str, places: set[tuple[int, int]]
) -> None:
    scenario = with_used(used)
    spec = scenario.parameters[0]
    everywhere = [(rank, micro_batch) for rank in (0, 1) for micro_batch in (0, 1)]
    found = {p for p in everywhere if step_plan.is_used(scenario, spec, p[0], 0, p[1])}
    assert found == places
    assert step_plan.has_gradient(scenario, spec, (0, 1), 0) == bool(places)


def test_a_micro_batch_that_does_not_run_contributes_nothing() -> None:
    spec = PLAIN.parameters[0]
    scenarios = [PLAIN, with_event("missing_backward"), with_event("empty_step")]
    found = [
        [step_plan.contributes(scenario, spec, 0, 0, m) for m in range(3)]
        for scenario in scenarios
    ]
    assert found == [[True, True, False], [True, False, False], [False] * 3]
    odd = with_event("missing_backward/on_odd_ranks")
    assert [step_plan.runs(odd, rank, 0, 1) for rank in (0, 1)] == [True, False]


def test_every_second_trainable_parameter_freezes_and_stays_frozen() -> None:
    scenario = with_event("freeze", 1)
    frozen = [
        [
            spec.name
            for spec in scenario.parameters
            if step_plan.is_frozen(scenario, spec, s)
        ]
        for s in range(3)
    ]
    assert frozen == [[], ["p1"], ["p1"]]
    spec = scenario.parameters[1]
    assert step_plan.has_gradient(scenario, spec, (0,), 0)
    assert not step_plan.has_gradient(scenario, spec, (0,), 1)


@pytest.mark.parametrize(
    ("events", "frozen"),
    [
        (("freeze", "unfreeze"), [False, True, False]),
        (("unfreeze", "freeze"), [True, False, True]),
    ],
)
def test_parameters_freeze_and_train_in_turn(
    events: tuple[str, ...], frozen: list[bool]
) -> None:
    scenario = replace(PLAIN, events=events)
    spec = scenario.parameters[1]
    assert [step_plan.is_frozen(scenario, spec, s) for s in (-1, 0, 1)] == frozen


@pytest.mark.parametrize(
    ("event", "excused"),
    [
        ("wait_twice", []),
        ("empty_step", [0]),
        ("set_to_none", [0, 1]),
        ("freeze", [0, 1, 2]),
    ],
)
def test_an_event_excuses_errors_in_its_own_time(
    event: str, excused: list[int]
) -> None:
    scenario, nothing = with_event(event), Capabilities()
    may_raise = [s for s in range(3) if any(refusable_features(scenario, nothing, s))]
    assert may_raise == excused
    promised = Capabilities(right=frozenset({f"event={event}"}))
    assert not any([*refusable_features(scenario, promised, step)] for step in range(3))


@pytest.mark.parametrize(
    ("event", "cast"),
    [("cast", [True, True, True]), ("cast_before_zero", [False, True, True])],
)
def test_gradients_are_cast_from_the_event_on(event: str, cast: list[bool]) -> None:
    assert [step_plan.is_cast(with_event(event), s) for s in range(3)] == cast
