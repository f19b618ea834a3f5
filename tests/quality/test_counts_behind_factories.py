"""A setter that only an instance shows: by a property, by `__getattr__`, or from a function."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from syncverify import verify
from syncverify.backends.announced_counts import with_announced_counts
from syncverify.backends.sim import SimBackend
from syncverify.bugbank.bases.careful import Careful
from syncverify.judge.properties import check
from syncverify.judge.violation import Violation
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve
from syncverify.verification.verify import PropertyViolation
from tests.quality.planted import counts


class FirstCountOnly(counts.AnnouncedCount):
    """Keeps the first count for ever."""

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


ONE_THEN_TWO = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (3,), ("R",)),), (1, 2), 1 << 20
)


def played(subject: Any) -> tuple[bool, list[Violation]]:
    """Tell whether a subject is given other counts, and play two counts if it is."""
    found = with_announced_counts(resolve(subject), "sim", [])
    capabilities = found.capabilities
    if not capabilities.varying_accumulations:
        return False, []
    run = SimBackend().run(ONE_THEN_TWO, found)
    return True, check(ONE_THEN_TWO, run, capabilities)


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
    is_given_counts, violations = played(subject)
    assert is_given_counts
    assert violations


@pytest.mark.parametrize(
    ("subject", "has_setter"),
    [
        (makes(PropertyOfNone), False),
        (PropertyOfNone, False),
        (makes_without_count(counts.AnnouncedCount), True),
        (functools.partial(Careful), True),
    ],
)
def test_a_right_one_is_not_accused(subject: Any, has_setter: bool) -> None:  # noqa: FBT001  # a parameter of a test
    assert played(subject) == (has_setter, [])


@pytest.mark.long
@pytest.mark.usefixtures("hardly_shrunk")
def test_a_search_plays_the_counts_of_an_instance() -> None:
    # Seed 0 draws two synchronizers and a parameter that odd ranks do not use: `Careful`
    # launches it in a backward on one rank and in `wait()` on the other, which is a mistake.
    given = {"ranks": 2, "examples": 30, "beyond": False, "stop_at_first": True}
    assert not verify(makes(PropertyOfNone), seed=1, **given).violations
    with pytest.raises(PropertyViolation):
        verify(makes(PropertyOfFirst), seed=1, **given)


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


@pytest.mark.long
def test_a_search_accuses_no_constructor_without_a_count() -> None:
    assert not verify(counts.AnnouncedCount, ranks=3, examples=40, seed=0).violations
