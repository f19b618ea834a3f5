"""A subject that takes `param_groups` for another form gets a hint about its form."""

from collections.abc import Callable
from typing import Any

import pytest

from syncverify import PropertyViolation, verify

FORM = "{0} is a list of lists of parameters, [[p0, p1], [p2]], and not a flat list"
LOOPS = "`for group in {0}: for parameter in group: ...`"


class Reads:
    """Reads the groups in `bind()`; it does nothing else."""

    read: Callable[[Any], Any]

    def __init__(self, param_groups: Any, *_: object) -> None:
        self.param_groups = param_groups

    def bind(self) -> None:
        for group in self.param_groups:
            type(self).read(group)

    def wait(self) -> None: ...
    def zero_grad(self) -> None: ...
    def unbind(self) -> None: ...


class TakesFlatLists(Reads):
    read = staticmethod(lambda parameter: parameter.requires_grad)


class NamesThemParameters(TakesFlatLists):
    def __init__(self, parameters: Any, *_: object) -> None:
        super().__init__(parameters)


class TakesDicts(Reads):
    read = staticmethod(lambda group: group["params"])


class RaisesOfItsOwn(Reads):
    read = staticmethod(lambda group: {}["missing"])


def diagnosis(subject: type[Reads]) -> str:
    with pytest.raises(PropertyViolation) as caught:
        verify(subject, examples=1, seed=0)
    return str(caught.value)


@pytest.mark.long
@pytest.mark.parametrize(
    ("subject", "argument"),
    [(TakesDicts, "param_groups"), (NamesThemParameters, "parameters")],
)
def test_the_form_of_groups_is_in_the_hint(subject: type[Reads], argument: str) -> None:
    shown = diagnosis(subject)
    assert FORM.format(argument) in shown
    assert LOOPS.format(argument) in shown


@pytest.mark.long
def test_another_error_says_nothing_of_groups() -> None:
    assert "param_groups" not in diagnosis(RaisesOfItsOwn).partition("hint:")[2]
