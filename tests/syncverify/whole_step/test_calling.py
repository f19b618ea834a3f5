"""A user's function gets the values that its parameters name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from syncverify.errors import UsageError
from syncverify.whole_step.calling import call

VALUES = {"model": 1, "batch": 2, "mesh": 3}


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (lambda mesh, model: (mesh, model), (3, 1)),
        (lambda model, batch, /: (model, batch), (1, 2)),
        (lambda p: p, 1),
        (lambda batch, *, other: (batch, other), (2, 1)),
        (lambda batch, scale=5, **_: (batch, scale), (2, 5)),
        (lambda: (), ()),
    ],
)
def test_parameters_get_the_values_of_their_names(
    function: Callable[..., Any], given: object
) -> None:
    assert call(function, VALUES) == given


def test_a_parameter_without_a_value_is_named() -> None:
    def loss(model: int, batch: int, meshes: int) -> None: ...

    with pytest.raises(UsageError) as caught:
        call(loss, VALUES)
    assert str(caught.value) == (
        "loss() takes 'meshes' ('mesh'?), which it is not given; "
        "it can take: model, batch, mesh"
    )
