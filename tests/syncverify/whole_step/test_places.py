"""The places of a mistake are functions of the user."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest

from syncverify.whole_step.causes import LacksSum, NotUpdated, StepMistake, Weighted
from syncverify.whole_step.layout import Layout
from syncverify.whole_step.places import places_of
from syncverify.whole_step.training import Training
from tests.syncverify.whole_step.comparisons import finding


def parallelize() -> None: ...


def loss() -> None: ...


def own(*_: object) -> None: ...


_LACKS_SUM = LacksSum(frozenset({"tp"}))


@pytest.mark.parametrize(
    ("cause", "more", "functions"),
    [
        (_LACKS_SUM, {}, [parallelize]),
        (_LACKS_SUM, {"step": own}, [own, parallelize]),
        (Weighted((1.0,), are_equal=False), {}, [loss]),
        # The optimizer of a training that names none has no line of the user.
        (NotUpdated((0,)), {}, [parallelize]),
    ],
)
def test_places_are_the_first_lines_of_the_functions_that_make_the_value(
    cause: StepMistake, more: dict[str, Any], functions: list[FunctionType]
) -> None:
    training = Training(
        build=own, parallelize=parallelize, batch=own, loss=loss, **more
    )
    places = places_of(finding(cause, "w"), training, Layout.of({"tp": 2}), None)
    assert [(each.function, each.number) for each in places] == [
        (each.__name__, each.__code__.co_firstlineno) for each in functions
    ]
