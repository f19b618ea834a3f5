"""Environment, filters of warnings and global hooks, which belong to the training program.

An import of a package may change each of them, for good reasons.
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, Final

from syncverify.sim.process_wide.global_hooks import GlobalHooks
from syncverify.sim.process_wide.rank_variables import RANK_VARIABLES

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
        self._hooks = GlobalHooks()

    def changed(self) -> tuple[str, ...]:
        """Name the changes, unless an import of a package may have made them."""
        if self._has_imported():
            return ()
        filters: tuple[str, ...] = ()
        if self._list_of_filters != self._filters:
            filters = ("Python's filters of warnings are not those of before",)
        return (*self._changed_variables(), *filters)

    def hooks_changed(self) -> tuple[str, ...]:
        """Name the changes of global hooks, unless an import may have made them."""
        return () if self._has_imported() else self._hooks.changed()

    def restore(self) -> None:
        """Undo the changes."""
        now = _variables()
        if now != self._variables:
            for name in now.keys() - self._variables.keys():
                del os.environ[os.fsdecode(name)]
            for name, value in self._variables.items():
                os.environ[os.fsdecode(name)] = os.fsdecode(value)
        if self._list_of_filters != self._filters:
            # Its end makes Python look at filters again.
            with warnings.catch_warnings():
                self._list_of_filters[:] = self._filters
        self._hooks.restore()

    def _has_imported(self) -> bool:
        """Tell whether a package that is not Python's own was imported since."""
        new = itertools.islice(sys.modules, self._num_modules, None)
        return any(
            name.partition(".")[0] not in sys.stdlib_module_names for name in new
        )

    def _changed_variables(self) -> Iterator[str]:
        now = _variables()
        if now == self._variables:
            return
        for name in sorted({*now, *self._variables}):
            before, after = self._variables.get(name), now.get(name)
            text = os.fsdecode(name)
            if before != after and not text.startswith(_PREFIXES_OF_TORCH):
                yield f"the environment's {text} is {_shown(after)}, was {_shown(before)}"


def _shown(value: bytes | None) -> str:
    return "not set" if value is None else repr(os.fsdecode(value))


def _variables() -> dict[bytes, bytes]:
    # To copy `os.environ` itself decodes each entry, which takes longer than all the rest.
    return dict(getattr(os.environ, "_data"))  # noqa: B009  # private, and not typed
