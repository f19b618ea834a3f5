"""`param_groups` is a list of lists of parameters; other forms are named and refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from syncverify.synchronizer import GradientSynchronizer, InvalidArgumentError

EXPECTED = "  expected: a list of groups, each a list of parameters: [[p0, p1], [p2]]"
ONE_GROUP = (
    "  hint: [list(model.parameters())] is one group of all parameters, as"
    " GradientSynchronizer.from_module(model, ...) takes them by default"
)
OF_OPTIMIZER = (
    '  hint: [group["params"] for group in optimizer.param_groups] are the groups of an'
    " optimizer"
)


def model() -> nn.Linear:
    return nn.Linear(3, 2)


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": [p]} for p in model().parameters()], lr=0.1)


# Groups, the first line of the error, the fact, and the remedy.
FORMS: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "a flat list": (
        lambda: [*model().parameters()],
        "param_groups is a flat list of parameters",
        "param_groups[0] is a Parameter",
        ONE_GROUP,
    ),
    "a module": (
        model,
        "param_groups is no list of groups",
        "param_groups is a Linear",
        ONE_GROUP,
    ),
    "dicts": (
        lambda: optimizer().param_groups,
        "param_groups is a list of dicts, as optimizers of torch take it",
        "param_groups[0] is a dict",
        OF_OPTIMIZER,
    ),
    "one dict": (
        lambda: optimizer().param_groups[0],
        "param_groups is no list of groups",
        "param_groups is a dict",
        OF_OPTIMIZER,
    ),
    "a group that can be read once": (
        lambda: [model().parameters()],
        "group 0 of param_groups is no list of parameters",
        "param_groups[0] is a generator",
        ONE_GROUP,
    ),
    "names and parameters": (
        lambda: [[*model().named_parameters()]],
        "group 0 of param_groups is no list of parameters",
        "param_groups[0][0] is a tuple",
        ONE_GROUP,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_another_form_of_groups_is_named(one_rank: None, form: str) -> None:
    groups, headline, got, hint = FORMS[form]
    with pytest.raises(InvalidArgumentError) as caught:
        GradientSynchronizer(groups(), 25, 1)
    assert str(caught.value).splitlines() == [
        headline,
        EXPECTED,
        f"  got:      {got}",
        "  where:    rank 0 of 1",
        hint,
    ]


def test_groups_that_are_filled_before_bind_are_looked_at_again(one_rank: None) -> None:
    groups: list[Any] = []
    synchronizer = GradientSynchronizer(groups, 25, 1)
    groups.extend(model().parameters())
    with pytest.raises(InvalidArgumentError, match=r"^param_groups is a flat list"):
        synchronizer.bind()


@pytest.mark.parametrize("kind", [list, tuple])
def test_lists_and_tuples_are_groups(one_rank: None, kind: Any) -> None:
    parameters = kind(model().parameters())
    with GradientSynchronizer(kind([parameters, kind(())]), 25, 1) as synchronizer:
        assert len(synchronizer.explain().buckets) == 1
