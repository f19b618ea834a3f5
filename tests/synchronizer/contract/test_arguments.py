"""`param_groups` is a list of lists of parameters; other forms are named and refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from syncverify.synchronizer import (
    GradientSynchronizer,
    InvalidArgumentError,
    SynchronizerConfig,
)
from tests.programs import lines

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


AXES = "keyed by the names or indices of mesh axes"
DTYPES = "a floating point dtype of 2 bytes or more, or None"
# Option, value, and what is expected.
REFUSED: list[tuple[str, Any, str]] = [
    ("axis_reductions", "avg", "a mapping from mesh axes to reductions"),
    ("axis_reductions", {-1: "avg"}, AXES),
    ("axis_reductions", {True: "avg"}, AXES),
    ("process_group_reduction", "none", "one of 'sum', 'avg'"),
    ("scaling", "never", "one of 'after', 'split'"),
    ("unused", "ignore", "one of 'error', 'zeros', 'keep_none'"),
    ("mode", "scatter", "one of 'all_reduce', 'reduce_scatter'"),
    ("unequal_replicas", "ignore", "one of 'error', 'broadcast', 'keep'"),
    ("gradient_hook", "c", "one of 'python', 'cpp'"),
    ("wire_dtype", "bfloat16", DTYPES),
    ("wire_dtype", torch.int32, DTYPES),
    ("wire_dtype", torch.float8_e4m3fn, DTYPES),
    ("wire_dtype", torch.complex64, DTYPES),
]


@pytest.mark.parametrize(("option", "given", "expected"), REFUSED)
def test_another_value_is_refused(option: str, given: Any, expected: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        SynchronizerConfig(**{option: given})
    assert lines(caught) == [
        f"{option} is not {expected}",
        f"  expected: {expected}",
        f"  got:      {option}={given!r}",
        "  where:    rank 0 of 1",
        f"  hint: {InvalidArgumentError.hint}",
    ]


def test_the_axis_of_an_unknown_reduction_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"^axis_reductions\['dp'\] is not"):
        SynchronizerConfig(axis_reductions={"dp": "mean"})


def test_the_caller_cannot_change_reductions_later() -> None:
    given = {"dp": "avg"}
    config = SynchronizerConfig(axis_reductions=given)
    given["tp"] = "nonsense"
    assert config.axis_reductions == {"dp": "avg"}


MESSAGE = """\
no gradient would be reduced
  expected: a process group for ordinary parameters, which no mesh describes
  got:      config.process_group=None, 2 ranks, and no DTensor
  where:    rank 0 of 2
  hint: pass SynchronizerConfig(process_group=dist.group.WORLD), or the group of the \
data-parallel ranks; allow_local_only=True keeps all gradients local"""


def ordinary(*, requires_grad: bool = True) -> nn.Parameter:
    return nn.Parameter(torch.zeros(4), requires_grad=requires_grad)


def distributed(
    placement: Replicate | Shard, *, requires_grad: bool = True
) -> nn.Parameter:
    # torch keeps plans by mesh, also for a later test with an equal mesh on another rank: no
    # other test has this one.
    mesh = init_device_mesh("cpu", (1, 1, 1, dist.get_world_size()))
    placements = [Replicate()] * 3 + [placement]
    local = DTensor.from_local(torch.zeros(4), mesh, placements, run_check=False)
    return nn.Parameter(local, requires_grad=requires_grad)


def bind(parameters: list[nn.Parameter], **options: object) -> None:
    config = SynchronizerConfig(**options)
    GradientSynchronizer([parameters], 1, 1, config=config).bind()


def test_ordinary_parameters_without_a_group_are_refused(two_ranks: None) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        bind([ordinary(), ordinary()])
    assert str(caught.value) == MESSAGE


def test_a_frozen_dtensor_has_no_gradient_to_reduce(two_ranks: None) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^no gradient would be reduced"):
        bind([ordinary(), distributed(Replicate(), requires_grad=False)])


def test_a_refused_synchronizer_leaves_the_parameters_alone(two_ranks: None) -> None:
    weight = ordinary()
    synchronizer = GradientSynchronizer([[weight]], 1, 1)
    with pytest.raises(InvalidArgumentError):
        synchronizer.bind()
    assert weight.grad is None
    assert not weight._post_accumulate_grad_hooks
    assert repr(synchronizer).startswith("GradientSynchronizer(unbound")


def test_what_has_a_group_a_mesh_or_the_option_is_bound(two_ranks: None) -> None:
    bind([ordinary()], process_group=dist.group.WORLD)
    bind([ordinary()], allow_local_only=True)
    bind([ordinary(), distributed(Replicate())])
    bind([ordinary(), distributed(Shard(0))])
    bind([distributed(Shard(0))])
    # Nothing to train is nothing to reduce.
    bind([])
    bind([ordinary(requires_grad=False)])


def test_one_rank_reduces_nothing(one_rank: None) -> None:
    bind([ordinary()])


def test_without_a_default_group_nothing_is_reduced() -> None:
    bind([ordinary()])
