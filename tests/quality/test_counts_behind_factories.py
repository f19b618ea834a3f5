"""A setter that only an instance shows: by a property, by `__getattr__`, or from a function."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import override

from syncverify import verify
from syncverify.backends.announced_counts import with_announced_counts
from syncverify.bugbank.bases.careful import Careful
from syncverify.report.report import Report
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.subject import resolve
from syncverify.verification.verify import PropertyViolation
from tests.quality.planted import counts


class FirstCountOnly(counts.ToldCount):
    """Keeps the first count for ever."""

    @override
    def set_required_accumulations(self, require_accumulations: int) -> None:
        self.required = self.required or require_accumulations


class FirstCountOfConstructor(Careful):
    """Keeps the count of the constructor for ever."""

    def set_required_accumulations(self, require_accumulations: int) -> None:
        """Forget the number."""


class PropertyOfFirst(Careful):
    """Has a setter that a property returns."""

    @property
    def set_required_accumulations(self) -> Callable[[int], None]:
        return lambda _: None


class PropertyOfNone(Careful):
    """Has no setter, by a property."""

    set_required_accumulations = property(lambda self: None)


class HandsOn:
    """Hands all on to another synchronizer."""

    def __init__(self, groups: Any, size: float, count: int) -> None:
        self._inner: Any = FirstCountOfConstructor(groups, size, count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def bind(self) -> None:
        self._inner.bind()

    def wait(self) -> None:
        self._inner.wait()

    def zero_grad(self) -> None:
        self._inner.zero_grad()

    def unbind(self) -> None:
        self._inner.unbind()


def makes(made: type) -> Callable[..., Any]:
    return lambda groups, size, count: made(groups, size, count)


def makes_without_count(made: type) -> Callable[..., Any]:
    return lambda groups, size: made(groups, size)


def searched(subject: Any, seed: int = 0, **given: Any) -> Report:
    return verify(
        subject,
        ranks=2,
        examples=30,
        seed=seed,
        beyond=False,
        stop_at_first=True,
        **given,
    )


@pytest.mark.long
@pytest.mark.usefixtures("hardly_shrunk")
@pytest.mark.parametrize(
    "subject",
    [
        makes(FirstCountOfConstructor),
        makes_without_count(FirstCountOnly),
        functools.partial(FirstCountOfConstructor),
        PropertyOfFirst,
        makes(PropertyOfFirst),
        HandsOn,
    ],
)
def test_a_setter_that_an_instance_has_is_played(subject: Any) -> None:
    with pytest.raises(PropertyViolation):
        searched(subject)


@pytest.mark.long
@pytest.mark.parametrize(
    "subject",
    [
        makes(PropertyOfNone),
        PropertyOfNone,
        makes_without_count(counts.ToldCount),
        functools.partial(Careful),
    ],
)
def test_a_right_one_is_not_accused(subject: Any) -> None:
    # Seed 0 draws two synchronizers and a parameter that odd ranks do not use: `Careful`
    # launches it in a backward on one rank and in `wait()` on the other, which is a mistake.
    assert not searched(subject, seed=1).violations


def test_a_contract_may_leave_the_setter_out() -> None:
    made = makes(FirstCountOfConstructor)
    assert resolve(made).may_announce
    assert not resolve(made, Capabilities()).may_announce
    assert not resolve(Careful).may_announce
    without_count = resolve(makes_without_count(FirstCountOnly))
    assert without_count.capabilities.varying_accumulations
    assert not without_count.may_announce


def test_a_backend_that_shows_no_instance_says_what_it_does_not_play() -> None:
    notes: list[str] = []
    found = with_announced_counts(
        resolve(makes(FirstCountOfConstructor)), "gloo", notes
    )
    assert not found.capabilities.varying_accumulations
    (line,) = notes
    assert line.startswith(
        "not tried on gloo: other numbers of micro-batches in later steps, since"
    )
    assert not resolve(FirstCountOfConstructor).may_announce
