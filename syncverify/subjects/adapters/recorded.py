"""The record of parameters and of process-wide state, and the way back to it.

No other module of `adapters` reads the private registries of a tensor's hooks. torch has
no public way to list them (torch/_tensor.py, `register_post_accumulate_grad_hook`).
"""

from collections.abc import Iterator, MutableMapping
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

Registry = MutableMapping[int, Any]


class RecordedParameter:
    """State of one parameter: its memory, its attributes, and the keys of its hooks.

    `restore()` removes each hook, attribute and gradient that came later, and puts the
    parameter back into its memory. Values are carried over: a synchronizer that changed
    the value of a parameter is still seen. A DTensor has the memory of its local part.
    """

    def __init__(self, parameter: nn.Parameter) -> None:
        self._parameter = parameter
        self._data = parameter.data
        self._attributes = dict(vars(parameter))
        # Keys of hooks are unique in the process, so the keys of all registries are one set.
        self._hook_keys = {key for hooks in _registries(parameter) for key in hooks}

    def restore(self) -> None:
        """Restore the parameter."""
        for hooks in _registries(self._parameter):
            for key in hooks.keys() - self._hook_keys:
                del hooks[key]
        self._parameter.grad = None
        now, before = self._parameter.data, self._data
        # The training program changes dtypes and devices, by `module.double()` for example.
        is_alike = (now.dtype, now.device) == (before.dtype, before.device)
        if is_alike and _region(now) != _region(before):
            if now.shape == before.shape:
                before.copy_(now)
            self._parameter.data = before
        attributes = vars(self._parameter)
        attributes.clear()
        attributes.update(self._attributes)


def _registries(parameter: nn.Parameter) -> Iterator[Registry]:
    """Yield the hooks of a parameter, and those of its AccumulateGrad node, by key."""
    for registry in (
        parameter._post_accumulate_grad_hooks,  # noqa: SLF001
        parameter._backward_hooks,  # noqa: SLF001
    ):
        if registry:
            yield registry
    if parameter.requires_grad:
        with torch.enable_grad():
            user: Any = parameter.expand_as(parameter).grad_fn
        # torch makes an AccumulateGrad node if no graph and no caller holds it.
        node = user.next_functions[0][0]
        # Nodes list no hooks either, but each handle knows the registry that it is in.
        for register in (node.register_hook, node.register_prehook):
            handle = register(lambda *_: None)
            handle.remove()
            yield handle.hooks_dict_ref()


def _region(data: torch.Tensor) -> tuple[int, torch.Size, tuple[int, ...]]:
    """Return address in bytes, shape and strides of a tensor's local memory."""
    local = data.to_local() if isinstance(data, DTensor) else data
    return local.data_ptr(), local.shape, local.stride()


class RecordedGlobals:
    """Attributes of one module or class, with the items of its lists, dicts and sets.

    `restore()` sets each attribute to the object that it was, fills each container in
    place, since others may hold it, and deletes attributes that came later. Modules that
    were imported meanwhile stay: Python imports them once.
    """

    def __init__(self, owner: Any) -> None:
        self._owner = owner
        self._values = _state_of(owner)
        self._items = [
            (each, each.copy())
            for each in self._values.values()
            if isinstance(each, list | dict | set)
        ]

    def restore(self) -> None:
        """Restore the attributes."""
        for name, value in _state_of(self._owner).items():
            if name not in self._values and not isinstance(value, ModuleType):
                delattr(self._owner, name)
        for container, items in self._items:
            container.clear()
            fill = container.extend if isinstance(container, list) else container.update
            fill(items)
        for name, value in self._values.items():
            if vars(self._owner).get(name) is not value:
                setattr(self._owner, name, value)


def _state_of(owner: Any) -> dict[str, Any]:
    return {k: v for k, v in vars(owner).items() if not k.startswith("__")}
