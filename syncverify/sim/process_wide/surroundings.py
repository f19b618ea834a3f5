"""Environment, filters of warnings, global hooks and functions of torch.

They belong to the training program. An import of a package may change each of the first three,
for good reasons. A function that a verdict relies on may not be replaced: the subject runs in the
process that compares its gradients, and with another `torch.equal` every gradient would be right.

The only module that reads the private registries of hooks. torch has no public way to list them
(torch/nn/modules/module.py, `register_module_forward_hook` and others, and
torch/optim/optimizer.py, `register_optimizer_step_pre_hook`).
"""

import functools
import itertools
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final

import torch
from torch.nn.modules import module
from torch.optim import optimizer

from syncverify.sim.process_wide.rank_variables import RANK_VARIABLES
from syncverify.trace.source_files import is_harness_line

_PREFIX, _SUFFIX = "_global_", "_hooks"
# The kind of the backward hooks of all modules: True for full hooks, False for old ones, None
# without a hook. torch allows one kind, that of the first hook.
FULL_BACKWARD_HOOKS: Final = module, "_global_is_full_backward_hook"


@functools.cache  # torch makes each registry once
def hook_registries() -> Mapping[str, MutableMapping[int, Any]]:
    """Return each registry by a name, such as `forward_pre_hooks of all modules`."""
    return {
        f"{name.removeprefix(_PREFIX)} of all {owned}": registry
        for owner, owned in ((module, "modules"), (optimizer, "optimizers"))
        for name, registry in vars(owner).items()
        if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
    }


_OF_TORCH = "allclose", "cat", "equal", "isclose", "isfinite", "stack", "where", "zeros"
_OF_TENSORS = "all", "any", "clone", "detach", "double", "equal", "isfinite", "reshape"
# As they are before any subject is imported.
_ORIGINALS: Final = tuple(
    (f"{text}.{name}", owner, name, getattr(owner, name))
    for text, owner, names in (
        ("torch", torch, _OF_TORCH),
        ("torch.Tensor", torch.Tensor, _OF_TENSORS),
    )
    for name in names
)


def replaced_functions() -> tuple[str, ...]:
    """Name the functions that a subject has replaced; those of the simulated machine are left out."""
    return tuple(
        text
        for text, owner, name, original in _ORIGINALS
        if (present := getattr(owner, name)) is not original
        and not _is_of_harness(present)
    )


def _is_of_harness(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and is_harness_line(code.co_filename)


def restore_functions() -> None:
    """Put the functions back."""
    for _, owner, name, original in _ORIGINALS:
        if getattr(owner, name) is not original:
            setattr(owner, name, original)


# Names, and beginnings of names, of variables that torch and its launchers write themselves.
_PREFIXES_OF_TORCH: Final = (
    *RANK_VARIABLES,
    *("MASTER_ADDR", "MASTER_PORT", "CUDA_MODULE_LOADING", "CUDA_HOME"),
    *("CUBLAS_WORKSPACE_CONFIG", "TEARDOWN_CUPTI", "DISABLE_CUPTI_LAZY_REINIT"),
    *("TORCH", "_TORCH", "TRITON", "KMP_"),
)


class Surroundings:
    """Variables, filters and hooks as they are now, to be compared later."""

    def __init__(self) -> None:
        self._num_modules = len(sys.modules)
        self._variables = _variables()
        # `warnings.catch_warnings` puts another list in its place for a block, and blocks of
        # ranks that are threads overlap. A change for good is one of this list.
        self._list_of_filters: Any = warnings.filters  # typed as if it were constant
        self._filters = [*warnings.filters]
        self._hooks = {name: dict(each) for name, each in hook_registries().items()}

    def changed(self) -> tuple[str, ...]:
        """Name the changes, unless an import of a package may have made them."""
        return () if self._has_imported() else tuple(self._changes())

    def _changes(self) -> Iterator[str]:
        now = _variables()
        for name in sorted({*now, *self._variables}) if now != self._variables else ():
            before, after = self._variables.get(name), now.get(name)
            text = os.fsdecode(name)
            if before != after and not text.startswith(_PREFIXES_OF_TORCH):
                yield f"the environment's {text} is {_shown(after)}, was {_shown(before)}"
        if self._list_of_filters != self._filters:
            yield "Python's filters of warnings are not those of before"

    def hooks_changed(self) -> tuple[str, ...]:
        """Name the changes of global hooks, unless an import may have made them."""
        if self._has_imported():
            return ()
        return tuple(
            f"{name}: {len(now.keys() - before)} new, {len(before - now.keys())} removed"
            for name, now in hook_registries().items()
            if now.keys() != (before := self._hooks[name].keys())
        )

    def restore(self) -> None:
        """Undo the changes."""
        now = _variables()
        if now != self._variables:
            for variable in now.keys() - self._variables.keys():
                del os.environ[os.fsdecode(variable)]
            for variable, value in self._variables.items():
                os.environ[os.fsdecode(variable)] = os.fsdecode(value)
        if self._list_of_filters != self._filters:
            # Its end makes Python look at filters again.
            with warnings.catch_warnings():
                self._list_of_filters[:] = self._filters
        for name, registry in hook_registries().items():
            if registry.keys() != self._hooks[name].keys():
                registry.clear()
                registry.update(self._hooks[name])

    def _has_imported(self) -> bool:
        """Tell whether a package that is not Python's own was imported since."""
        new = itertools.islice(sys.modules, self._num_modules, None)
        return any(
            name.partition(".")[0] not in sys.stdlib_module_names for name in new
        )


def _shown(value: bytes | None) -> str:
    return "not set" if value is None else repr(os.fsdecode(value))


def _variables() -> dict[bytes, bytes]:
    # To copy `os.environ` itself decodes each entry, which takes longer than all the rest.
    return dict(getattr(os.environ, "_data"))  # noqa: B009  # private, and not typed
