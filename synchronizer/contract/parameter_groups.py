"""The form of `param_groups`: a list of groups, each a list of parameters."""

from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, TypeGuard, TypeVar

import torch
from torch import nn

from .errors import InvalidArgumentError

_EXPECTED: Final = "a list of groups, each a list of parameters: [[p0, p1], [p2]]"
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


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    is_text = isinstance(value, str | bytes)
    return isinstance(value, Sequence | nn.ParameterList) and not is_text


def _refuse(headline: str, place: str, value: object) -> NoReturn:
    raise InvalidArgumentError(
        headline,
        expected=_EXPECTED,
        got=f"{place} is a {type(value).__name__}",
        hint=_OF_OPTIMIZER if isinstance(value, Mapping) else _ONE_GROUP,
    )
