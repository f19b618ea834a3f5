"""A class that cannot take another number of micro-batches is played with its first one."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn

from syncverify import play, verify
from syncverify.adapters import LOCAL_MEAN, HooksAdapter
from syncverify.backends.announced_counts import with_announced_counts
from syncverify.errors import UsageError
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.subject import resolve

ONE_THEN_TWO = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (3,), ("R",)),), (1, 2), 1 << 20
)


class MeanWithoutSetter:
    """Right for one number of micro-batches, that of the constructor."""

    capabilities = LOCAL_MEAN

    def __init__(
        self, groups: list[list[nn.Parameter]], size_mb: float, count: int
    ) -> None:
        self.parameters = [p for group in groups for p in group if p.requires_grad]
        self.required = count

    def bind(self) -> None:
        self.counts: dict[nn.Parameter, int] = {}
        self.hooks = [
            p.register_post_accumulate_grad_hook(self.count) for p in self.parameters
        ]

    def count(self, parameter: nn.Parameter) -> None:
        self.counts[parameter] = self.counts.get(parameter, 0) + 1
        if self.counts[parameter] == self.required and parameter.grad is not None:
            parameter.grad.div_(dist.get_world_size())
            dist.all_reduce(parameter.grad)

    def wait(self) -> None:
        pass

    def zero_grad(self) -> None:
        self.counts = {}
        for parameter in self.parameters:
            parameter.grad = None

    def unbind(self) -> None:
        for hook in self.hooks:
            hook.remove()


class OverlapsWithoutSetter(MeanWithoutSetter):
    """Promises more, by a contract of its own."""

    capabilities = replace(LOCAL_MEAN, right=frozenset({"event=rebind"}))


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


def made(*given: Any) -> Any:
    return MeanWithoutSetter(*given)


def made_with_setter(*given: Any) -> Any:
    return LosesItsSetter(*given)


def same_signature(
    function: Callable[..., Any],
) -> Callable[[list[Any], float, int], Any]:
    return lambda groups, size, count: function(groups, size, count)


def given_counts(
    subject: Any, contract: Capabilities | None = None, backend: str = "sim"
) -> tuple[bool, list[str]]:
    notes: list[str] = []
    found = with_announced_counts(resolve(subject, contract), backend, notes)
    return found.capabilities.varying_accumulations, notes


@pytest.mark.parametrize("backend", ["sim", "fake", "gloo", "streams", "torchrun"])
@pytest.mark.parametrize("subject", [MeanWithoutSetter, OverlapsWithoutSetter])
def test_a_class_without_a_setter_gets_one_count_and_the_report_says_so(
    subject: Any, backend: str
) -> None:
    varies, (line,) = given_counts(subject, backend=backend)
    assert not varies
    assert line.startswith(
        "not tried: other numbers of micro-batches in later steps, which the contract promises"
    )


@pytest.mark.parametrize("backend", ["sim", "fake", "gloo"])
def test_a_factory_without_a_setter_gets_one_count(backend: str) -> None:
    varies, notes = given_counts(same_signature(made), LOCAL_MEAN, backend)
    assert (varies, len(notes)) == (False, 1)
    subject = same_signature(made_with_setter)
    assert given_counts(subject, LOCAL_MEAN, backend) == (True, [])


@pytest.mark.parametrize(
    ("subject", "varies"),
    [
        (LosesItsSetter, True),
        ("ddp", True),
        (partial(OwnAdapter), True),
        (OwnAdapter, True),
    ],
)
def test_a_class_that_takes_counts_gets_them(subject: Any, varies: bool) -> None:  # noqa: FBT001  # a parameter of a test
    assert given_counts(subject, LOCAL_MEAN) == (varies, [])


def test_a_contract_of_one_count_says_nothing() -> None:
    contract = replace(LOCAL_MEAN, varying_accumulations=False)
    assert given_counts(MeanWithoutSetter, contract) == (False, [])


def test_a_play_of_two_counts_is_refused() -> None:
    with pytest.raises(UsageError, match="accumulations=varying"):
        play(ONE_THEN_TWO, MeanWithoutSetter)
    with pytest.raises(UsageError, match="accumulations=varying"):
        play(ONE_THEN_TWO, same_signature(made), contract=LOCAL_MEAN)
    assert not play(ONE_THEN_TWO, LosesItsSetter).is_right


@pytest.mark.slow
def test_a_right_class_without_a_setter_is_silent() -> None:
    report = verify(MeanWithoutSetter, examples=20, seed=0)
    assert any("not tried: other numbers" in line for line in report.explored)
