"""The form of `param_groups`: a list of groups, each a list of parameters."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NoReturn, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from syncverify.synchronizer.contract.config import SynchronizerConfig
from syncverify.synchronizer.contract.errors import InvalidArgumentError

_ONE_GROUP: Final = (
    "[list(model.parameters())] is one group of all parameters, as"
    " GradientSynchronizer.from_module(model, ...) takes them by default"
)
_OF_OPTIMIZER: Final = '[group["params"] for group in optimizer.param_groups] are the groups of an optimizer'

_Groups = TypeVar("_Groups")


def checked(param_groups: _Groups) -> _Groups:
    """Return the groups themselves; refuse what is no list of lists of parameters.

    An iterator is refused as well: groups are read at each `bind()`.
    """
    groups: object = param_groups
    if not _is_list(groups):
        _refuse("param_groups is no list of groups", "param_groups", groups)
    for number, group in enumerate(groups):
        place = f"param_groups[{number}]"
        if isinstance(group, torch.Tensor):
            _refuse("param_groups is a flat list of parameters", place, group)
        if isinstance(group, Mapping):
            headline = "param_groups is a list of dicts, as optimizers of torch take it"
            _refuse(headline, place, group)
        headline = f"group {number} of param_groups is no list of parameters"
        if not _is_list(group):
            _refuse(headline, place, group)
        for position, parameter in enumerate(group):
            if not isinstance(parameter, torch.Tensor):
                _refuse(headline, f"{place}[{position}]", parameter)
    return param_groups


def refuse_local_only(
    param_groups: Iterable[Iterable[nn.Parameter]], config: SynchronizerConfig
) -> None:
    """Refuse a forgotten `process_group`: without one, each rank would train for itself.

    A DTensor that is sharded over all axes needs no sum either, but its mesh says so.

    Raises:
        InvalidArgumentError: No gradient would be reduced on more than one rank.
    """
    listed = (parameter for group in param_groups for parameter in group)
    kinds = {isinstance(each, DTensor) for each in listed if each.requires_grad}
    if kinds != {False} or config.process_group or config.allow_local_only:
        return
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    if world_size > 1:
        raise InvalidArgumentError(
            "no gradient would be reduced",
            expected="a process group for ordinary parameters, which no mesh describes",
            got=f"config.process_group=None, {world_size} ranks, and no DTensor",
            hint="pass SynchronizerConfig(process_group=dist.group.WORLD), or the group of"
            " the data-parallel ranks; allow_local_only=True keeps all gradients local",
        )


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    is_list = isinstance(value, Sequence | nn.ParameterList)
    return is_list and not isinstance(value, str | bytes)


def _refuse(headline: str, place: str, value: object) -> NoReturn:
    raise InvalidArgumentError(
        headline,
        expected="a list of groups, each a list of parameters: [[p0, p1], [p2]]",
        got=f"{place} is a {type(value).__name__}",
        hint=_OF_OPTIMIZER if isinstance(value, Mapping) else _ONE_GROUP,
    )
