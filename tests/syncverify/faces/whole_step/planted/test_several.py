"""Several mistakes in one step are several findings, and a consequence or a remark is none."""

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from syncverify.faces.whole_step.outcome import Parity
from syncverify.judge.whole_step.causes import (
    NotCleared,
    NotClipped,
    NotUpdated,
    Scaled,
    StepMistake,
)
from syncverify.judge.whole_step.values import Quantity
from tests.syncverify.faces.whole_step.planted.steps import (
    Optimizer,
    add,
    average,
    averaged_backward,
    compare,
    mean_square,
    sgd,
    update,
)

pytestmark = pytest.mark.slow

LIMIT = 0.1


def step(model, batch, mesh, optimizer, *, divides=True, clips=True, clears=True):
    mean_square(model, batch).backward()
    reduce = average if divides else add
    reduce(model.parameters(), mesh, "dp")
    norm = nn.utils.get_total_norm(
        [each.grad for each in model.parameters() if each.grad is not None]
    )
    # The program believes that it clips: the norm is computed, and thrown away.
    limit = LIMIT if clips else float("inf")
    nn.utils.clip_grads_with_norm_(model.parameters(), limit, norm)
    optimizer.step()
    if clears:
        optimizer.zero_grad()


def most_parameters(model: nn.Module) -> Optimizer:
    """Make an optimizer; on the mesh it lacks the last bias."""
    parameters = [*model.parameters()]
    return sgd(parameters[:-1] if hasattr(model, "is_on_mesh") else parameters)


def mark(model: nn.Module, mesh: DeviceMesh) -> None:
    model.is_on_mesh = True  # type: ignore[assignment]


def play(more: dict[str, Any] | None = None, **wrong: bool) -> Parity:
    return compare(step=functools.partial(step, **wrong), clip=LIMIT, **(more or {}))


def kinds(result: Parity) -> list[tuple[Quantity, type[StepMistake]]]:
    return [(e.finding.quantity, type(e.finding.cause)) for e in result.mistakes]


GRADIENT, STEPPED = Quantity.GRADIENT, Quantity.STEPPED


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "expected", "steps"),
    [
        ({"divides": False}, [(GRADIENT, Scaled)], [0]),
        ({"divides": False, "clips": False}, [(GRADIENT, Scaled), (STEPPED, NotClipped)],
            [0, 0]),
        ({"clips": False, "clears": False}, [(STEPPED, NotClipped), (GRADIENT, NotCleared)],
            [0, 1]),
        ({"divides": False, "clears": False}, [(GRADIENT, Scaled), (GRADIENT, NotCleared)],
            [0, 1]),
        ({}, [], []),
    ],
)  # fmt: skip
def test_each_mistake_of_a_step_is_named_and_no_consequence(
    wrong: dict[str, bool],
    expected: list[tuple[Quantity, type[StepMistake]]],
    steps: list[int],
) -> None:
    result = play(**wrong)
    assert kinds(result) == expected, str(result)
    assert [each.finding.step for each in result.mistakes] == steps
    if expected[:1] == [(GRADIENT, Scaled)]:
        assert result.mistakes[0].finding.follows[0] is Quantity.NORM
    if NotClipped in [each for _, each in expected]:
        assert "of clipping is not applied" in str(result)


@pytest.mark.slow
def test_a_parameter_that_the_optimizer_lacks_shows_behind_both() -> None:
    more = {"parallelize": mark, "optimizer": most_parameters}
    result = play(more, divides=False, clips=False)
    assert kinds(result) == [
        (GRADIENT, Scaled),
        (STEPPED, NotUpdated),
        (STEPPED, NotClipped),
    ], str(result)
    lacking = result.mistakes[1].finding
    assert [each.name for each in lacking.differences] == ["2.bias"]
    assert "give these parameters to the optimizer" in str(result)


def logging_step(model, batch, mesh, optimizer, *, waits):
    averaged_backward(model, batch, mesh)
    update(optimizer)
    logged = torch.ones(1)
    dist.all_reduce(logged, group=mesh.get_group("dp"), async_op=not waits)


@pytest.mark.long
def test_a_work_that_nothing_waits_for_is_one_remark_of_all_layouts() -> None:
    forgets = functools.partial(logging_step, waits=False)
    result = compare(step=forgets, layouts=["dp=2", "dp=4"])
    assert result.is_right, str(result)
    text, (remark,) = str(result), result.to_json()["remarks"]
    assert remark.startswith("nothing waits for all_reduce at ")
    assert text.count(f"REMARK: {remark}") == text.count("REMARK") == 1
    assert compare(step=functools.partial(logging_step, waits=True)).remarks == ()
