"""Hooks on all modules and on all optimizers of a process.

No other module of the harness reads these private registries. torch has no public way to list
them (torch/nn/modules/module.py, `register_module_forward_hook` and others, and
torch/optim/optimizer.py, `register_optimizer_step_pre_hook`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from torch.nn.modules import module
from torch.optim import optimizer

_PREFIX, _SUFFIX = "_global_", "_hooks"


class GlobalHooks:
    """The registered hooks as they are now, to be compared later."""

    def __init__(self) -> None:
        self._hooks = {
            name: dict(registry) for name, registry in hook_registries().items()
        }

    def changed(self) -> tuple[str, ...]:
        """Name the registries that have changed, with the numbers of new and of removed hooks."""
        changes = (
            (name, registry.keys() - before, before - registry.keys())
            for name, registry in hook_registries().items()
            for before in (self._hooks[name].keys(),)
        )
        return tuple(
            f"{name}: {len(new)} new, {len(gone)} removed"
            for name, new, gone in changes
            if new or gone
        )

    def restore(self) -> None:
        """Remove what was registered since, and register what was removed."""
        for name, registry in hook_registries().items():
            if registry.keys() != self._hooks[name].keys():
                registry.clear()
                registry.update(self._hooks[name])


@functools.cache  # torch makes each registry once
def hook_registries() -> Mapping[str, MutableMapping[int, Any]]:
    """Return each registry by a name, such as `forward_pre_hooks of all modules`."""
    return {
        f"{name.removeprefix(_PREFIX)} of all {owned}": registry
        for owner, owned in ((module, "modules"), (optimizer, "optimizers"))
        for name, registry in vars(owner).items()
        if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
    }


def full_backward_hooks() -> tuple[Callable[[], Any], Callable[[Any], None]]:
    """Return the functions that read and set the kind of the backward hooks of all modules.

    The kind is True for full hooks, False for old ones, None without a hook: torch allows one
    kind, that of the first hook.
    """
    name = "_global_is_full_backward_hook"
    return functools.partial(getattr, module, name), functools.partial(
        setattr, module, name
    )
