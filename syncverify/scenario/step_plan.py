"""The plan of each step: micro-batches that run, and parameters that they use.

Pure functions of a scenario. The rank program runs by this plan and the reference counts by
it, so the two cannot disagree. Step `num_steps` is the plain backward after `unbind()`.
"""

from collections.abc import Iterable
from typing import Final

from syncverify.scenario.feature_table import EVENTS
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import ParameterSpec

# The event after which parameters are born.
GROWN: Final = "remade/grown"


def num_agreed_micro_batches(scenario: Scenario, step: int) -> int:
    """Count the micro-batches that the subject expects."""
    return scenario.accumulations[step] if step < scenario.num_steps else 1


def num_micro_batches(scenario: Scenario, step: int) -> int:
    """Count the micro-batches that run on even ranks, including one that fails; see `runs`."""
    event = EVENTS[scenario.step_event(step)]
    agreed = num_agreed_micro_batches(scenario, step)
    return agreed + event.more_backwards if event.has_backward else 0


def max_micro_batches(scenario: Scenario, step: int) -> int:
    """Return the larger of the agreed and the real number of micro-batches."""
    agreed = num_agreed_micro_batches(scenario, step)
    return max(agreed, num_micro_batches(scenario, step))


def runs(scenario: Scenario, rank: int, step: int, micro_batch: int) -> bool:
    """Tell whether a rank runs a micro-batch of a step."""
    number = num_micro_batches(scenario, step)
    is_alone = EVENTS[scenario.step_event(step)].even_ranks_alone
    is_left_out = is_alone and rank % 2 == 1 and micro_batch == number - 1
    return micro_batch < number and not is_left_out


def used_parameters(
    scenario: Scenario, rank: int, step: int, micro_batch: int
) -> tuple[ParameterSpec, ...]:
    """List the parameters that a micro-batch's loss uses, in the order of its forward."""
    listed = scenario.parameters
    used = tuple(s for s in listed if is_used(scenario, s, rank, step, micro_batch))
    if scenario.readiness == "same" or not used:
        return used
    # Each rank or each step starts at another parameter, and keeps the order otherwise.
    turn = step if scenario.readiness == "by_rank/by_step" else rank
    first = turn % len(used)
    return used[first:] + used[:first]


def is_used(
    scenario: Scenario, spec: ParameterSpec, rank: int, step: int, micro_batch: int
) -> bool:
    """Tell whether a micro-batch's loss gives a parameter a gradient, by its word `used`."""
    if not is_born(scenario, spec, step):
        return False
    match spec.used:
        # A loss that depends on `undefined` gives no gradient.
        case "never" | "undefined":
            return False
        case "never/in_first_step":
            return step > 0
        case "never/in_even_steps":
            return step % 2 == 1
        case "never/in_odd_steps":
            return step % 2 == 0
        case "not_on_odd_ranks":
            return rank % 2 == 0
        case "not_in_first_micro_batch":
            return micro_batch > 0
        case "not_in_last_micro_batch":
            return micro_batch < max_micro_batches(scenario, step) - 1
    return True


def is_born(scenario: Scenario, spec: ParameterSpec, step: int) -> bool:
    """Tell whether a parameter is part of the training in a step."""
    if GROWN not in scenario.events or spec not in _freezable(scenario):
        return True
    return step > scenario.events.index(GROWN)


def is_frozen(scenario: Scenario, spec: ParameterSpec, step: int) -> bool:
    """Tell whether a parameter needs no gradient in a step, or in step -1 at `bind()`."""
    if not spec.requires_grad:
        return True
    if not may_freeze(scenario, spec):
        return False
    events = enumerate(scenario.events)
    freezing = [(n, event) for n, event in events if EVENTS[event].change == "freeze"]
    before = [(n, event) for n, event in freezing if n <= step]
    after = [event for n, event in freezing if n > step]
    if not before:  # a parameter that is trained from a step on was frozen before
        return after[:1] in (["unfreeze"], ["unfreeze_in_turn"])
    begin, event = before[-1]
    if event == "unfreeze_in_turn":
        last = min(step, scenario.num_steps - 1)
        return _freezable(scenario).index(spec) > last - begin
    return event == "freeze"


def may_freeze(scenario: Scenario, spec: ParameterSpec) -> bool:
    """Tell whether events that freeze parameters change this one."""
    return spec in _freezable(scenario)


def _freezable(scenario: Scenario) -> list[ParameterSpec]:
    # Every other trainable parameter, so that some are always trained.
    return [other for other in scenario.parameters if other.requires_grad][1::2]


def is_cast(scenario: Scenario, step: int) -> bool:
    """Tell whether the caller has cast the parameters before the `wait()` of a step."""
    return (
        "cast" in scenario.events[: step + 1]
        or "cast_before_zero" in scenario.events[:step]
    )


def contributes(
    scenario: Scenario, spec: ParameterSpec, rank: int, step: int, micro_batch: int
) -> bool:
    """Tell whether a micro-batch adds to a parameter's gradient."""
    return (
        runs(scenario, rank, step, micro_batch)
        and is_used(scenario, spec, rank, step, micro_batch)
        and not is_frozen(scenario, spec, step)
    )


def has_gradient(
    scenario: Scenario,
    spec: ParameterSpec,
    ranks: Iterable[int],
    step: int,
    count: int | None = None,
) -> bool:
    """Return whether one of the first `count` micro-batches of `ranks` contributes; None takes all.

    Otherwise the gradient may be None.
    """
    counted = num_micro_batches(scenario, step) if count is None else count
    return any(
        contributes(scenario, spec, rank, step, micro_batch)
        for rank in ranks
        for micro_batch in range(counted)
    )
