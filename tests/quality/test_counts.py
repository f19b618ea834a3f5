"""A setter of the count that only an instance shows is played; a class without one gets one count."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn

from syncverify import play, verify
from syncverify.command.verification.verify import PropertyViolation
from syncverify.errors import UsageError
from syncverify.judge.violation import Violation
from syncverify.playing.announced_counts import with_announced_counts
from syncverify.scenario.contract import Capabilities
from syncverify.subjects.adapters import LOCAL_MEAN, HooksAdapter
from syncverify.subjects.bugbank.bases.careful import Careful
from syncverify.subjects.subject import Subject, resolve
from tests.programs import violations
from tests.quality.planted.counts import AnnouncedCount
from tests.quality.planted.planted import training

ONE_THEN_TWO = training(shape=(3,), accumulations=(1, 2))


class FirstCountOnly(AnnouncedCount):
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


class MeanWithoutSetter:
    """Right for one number of micro-batches, that of the constructor."""

    capabilities = LOCAL_MEAN

    def __init__(
        self, groups: list[list[nn.Parameter]], size_mb: float, count: int
    ) -> None:
        self.parameters = [p for group in groups for p in group if p.requires_grad]
        self.required = count

    def bind(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        self.hooks = [
            p.register_post_accumulate_grad_hook(self.count) for p in self.parameters
        ]

    def count(self, parameter: nn.Parameter) -> None:
        self.counts[parameter] += 1
        if self.counts[parameter] == self.required and parameter.grad is not None:
            parameter.grad.div_(dist.get_world_size())
            dist.all_reduce(parameter.grad)

    def wait(self) -> None:
        pass

    def zero_grad(self) -> None:
        self.counts = dict.fromkeys(self.parameters, 0)
        for parameter in self.parameters:
            parameter.grad = None

    def unbind(self) -> None:
        for hook in self.hooks:
            hook.remove()


class LosesItsSetter(MeanWithoutSetter):
    """Has a setter, and takes no number by it."""

    def set_required_accumulations(self, require_accumulations: int) -> None:
        pass


class OwnAdapter(HooksAdapter):
    """Is given the last micro-batch of each step."""

    def wrap(self, held: Any) -> Any:
        return held

    def synchronize(self) -> None:
        pass


def makes(made: type) -> Callable[..., Any]:
    return lambda groups, size, count: made(groups, size, count)


def makes_without_count(made: type) -> Callable[..., Any]:
    return lambda groups, size: made(groups, size)


def announced(
    subject: Any, contract: Capabilities | None = None, backend: str = "sim"
) -> tuple[Subject, bool, list[str]]:
    """Return the subject as it is played, whether it is given other counts, and the notes."""
    notes: list[str] = []
    found = with_announced_counts(resolve(subject, contract), backend, notes)
    return found, found.capabilities.varying_accumulations, notes


def played(subject: Any) -> tuple[bool, list[Violation]]:
    """Tell whether a subject is given other counts, and play two counts if it is."""
    found, varies, _ = announced(subject)
    return varies, violations(found, ONE_THEN_TWO) if varies else []


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
    is_given_counts, found = played(subject)
    assert is_given_counts
    assert found


@pytest.mark.parametrize(
    ("subject", "has_setter"),
    [
        (makes(PropertyOfNone), False),
        (PropertyOfNone, False),
        (makes_without_count(AnnouncedCount), True),
        (functools.partial(Careful), True),
    ],
)
def test_a_right_one_is_not_accused(subject: Any, *, has_setter: bool) -> None:
    assert played(subject) == (has_setter, [])


@pytest.mark.long
@pytest.mark.usefixtures("hardly_shrunk")
def test_a_search_plays_the_counts_of_an_instance() -> None:
    # Seed 0 draws two synchronizers and a parameter that odd ranks do not use: `Careful`
    # launches it in a backward on one rank and in `wait()` on the other, which is a mistake.
    given = {"ranks": 2, "examples": 30, "beyond": False, "stop_at_first": True}
    with pytest.raises(PropertyViolation):
        verify(makes(PropertyOfFirst), seed=1, **given)


def test_a_contract_may_leave_the_setter_out() -> None:
    made = makes(FirstCountOfConstructor)
    assert resolve(made).may_announce
    assert not resolve(made, Capabilities()).may_announce
    assert not resolve(Careful).may_announce


@pytest.mark.parametrize(
    ("subject", "backend", "words"),
    [
        (
            makes(FirstCountOfConstructor),
            "gloo",
            "not tried on gloo: other numbers of micro-batches in later steps, since",
        ),
        *(
            (
                MeanWithoutSetter,
                backend,
                "not tried: other numbers of micro-batches in later steps, which the contract",
            )
            for backend in ("sim", "gloo")
        ),
    ],
)
def test_the_report_says_that_other_counts_are_not_tried(
    subject: Any, backend: str, words: str
) -> None:
    _, varies, (line,) = announced(subject, backend=backend)
    assert not varies
    assert line.startswith(words)


@pytest.mark.parametrize("backend", ["sim", "fake", "gloo"])
def test_a_factory_without_a_setter_gets_one_count(backend: str) -> None:
    _, varies, notes = announced(makes(MeanWithoutSetter), LOCAL_MEAN, backend)
    assert (varies, len(notes)) == (False, 1)


@pytest.mark.parametrize(
    "subject",
    [
        makes(LosesItsSetter),
        LosesItsSetter,
        "ddp",
        functools.partial(OwnAdapter),
        OwnAdapter,
    ],
)
def test_a_class_that_takes_counts_gets_them(subject: Any) -> None:
    assert announced(subject, LOCAL_MEAN)[1:] == (True, [])


def test_a_contract_of_one_count_says_nothing() -> None:
    contract = replace(LOCAL_MEAN, varying_accumulations=False)
    assert announced(MeanWithoutSetter, contract)[1:] == (False, [])


def test_a_play_of_two_counts_is_refused() -> None:
    with pytest.raises(UsageError, match="accumulations=varying"):
        play(ONE_THEN_TWO, MeanWithoutSetter)
    with pytest.raises(UsageError, match="accumulations=varying"):
        play(ONE_THEN_TWO, makes(MeanWithoutSetter), contract=LOCAL_MEAN)
    assert not play(ONE_THEN_TWO, LosesItsSetter).is_right


@pytest.mark.long
def test_a_right_class_without_a_setter_is_silent() -> None:
    report = verify(MeanWithoutSetter, examples=20, seed=0)
    assert any("not tried: other numbers" in line for line in report.explored)
