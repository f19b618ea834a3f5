"""What really runs in each step of a scenario, and who contributes to what.

Pure functions of a scenario: the rank program plays by them, and the reference counts by
them. Step `num_steps` is the plain backward that follows `unbind()`.
"""

from __future__ import annotations

from collections.abc import Iterable

from syncverify.scenario import ParameterSpec, Scenario

_ONE_FEWER = ("missing_backward", "tail")


def num_agreed(scenario: Scenario, step: int) -> int:
    """Count the micro-batches that the subject was told of."""
    return scenario.accumulations[step] if step < scenario.num_steps else 1


def num_backwards(scenario: Scenario, step: int) -> int:
    """Count the micro-batches that run, with one that fails among them."""
    agreed, event = num_agreed(scenario, step), scenario.event(step)
    if event == "empty_step":
        return 0
    return agreed + (event == "extra_backward") - (event in _ONE_FEWER)


def most_backwards(scenario: Scenario, step: int) -> int:
    """Count the micro-batches that run or were agreed, whichever are more."""
    return max(num_agreed(scenario, step), num_backwards(scenario, step))


def terms(
    scenario: Scenario, rank: int, step: int, micro_batch: int
) -> tuple[ParameterSpec, ...]:
    """List the parameters in a loss, in the order in which forward comes to them."""
    used = tuple(
        spec
        for spec in scenario.parameters
        if is_used(scenario, spec, rank, step, micro_batch)
    )
    if scenario.readiness == "same" or not used:
        return used
    first = rank % len(used)
    return used[first:] + used[:first]


def is_used(
    scenario: Scenario, spec: ParameterSpec, rank: int, step: int, micro_batch: int
) -> bool:
    """Tell whether a micro-batch's loss depends on a parameter; see `USED`."""
    match spec.used:
        case "never":
            return False
        case "not_on_odd_ranks":
            return rank % 2 == 0
        case "not_in_first_micro_batch":
            return micro_batch > 0
        case "not_in_last_micro_batch":
            return micro_batch < most_backwards(scenario, step) - 1
    return True


def is_frozen(scenario: Scenario, spec: ParameterSpec, step: int) -> bool:
    """Tell whether a parameter needs no gradient in a step."""
    if not spec.requires_grad:
        return True
    if "freeze" not in scenario.events[: step + 1]:
        return False
    trainable = [other for other in scenario.parameters if other.requires_grad]
    return trainable.index(spec) % 2 == 1


def is_cast(scenario: Scenario, step: int) -> bool:
    """Tell whether the caller has changed the dtype of parameters by a step."""
    return "cast" in scenario.events[: step + 1]


def contributes(
    scenario: Scenario, spec: ParameterSpec, rank: int, step: int, micro_batch: int
) -> bool:
    """Tell whether a micro-batch adds to a parameter's gradient."""
    return (
        micro_batch < num_backwards(scenario, step)
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
    """Tell whether somebody contributes to a gradient; otherwise it may be None.

    Args:
        scenario: What is played.
        spec: The parameter.
        ranks: Who may contribute.
        step: Optimizer step.
        count: Of its first so many micro-batches; None for all that run.

    Returns:
        Whether one of them does.
    """
    counted = num_backwards(scenario, step) if count is None else count
    return any(
        contributes(scenario, spec, rank, step, micro_batch)
        for rank in ranks
        for micro_batch in range(counted)
    )
