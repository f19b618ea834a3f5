"""Files that are written as a whole, or left as they were, their folder, and the values in them.

Note [What a file may hold]
    A file holds pickled values, since a report needs all facts of a violation. It may come from
    another machine, as an artifact of CI. So nothing is imported for it, and only classes of
    plain values are called: those of this package, sets, counters and devices.
"""

import dataclasses
import io
import os
import pickle
import shutil
import sys
from enum import Enum
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from syncverify.errors import UsageError
from syncverify.scenario.coverage import Coverage

_PLAIN: Final = (
    "builtins set",
    "builtins frozenset",
    "collections Counter",
    "torch device",
)


def plain_value(content: bytes) -> Any:
    """Return a pickled value, or raise `UsageError`: see Note [What a file may hold]."""
    return _PlainUnpickler(io.BytesIO(content)).load()


class _PlainUnpickler(pickle.Unpickler):
    @override
    def find_class(self, module: str, name: str) -> Any:
        if f"{module} {name}" in _PLAIN:
            return super().find_class(module, name)
        if module.partition(".")[0] == "syncverify" and module in sys.modules:
            found = getattr(sys.modules[module], name, None)
            if isinstance(found, type) and found.__module__ == module:
                is_fixed = issubclass(found, Enum | tuple)
                if dataclasses.is_dataclass(found) or is_fixed or found is Coverage:
                    return found
        raise UsageError(f"the file names {module}.{name}, which is no plain value")


def replace_file(path: Path, content: bytes) -> None:
    """Write a file beside another one, which it replaces when it is complete."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(content)
        if path.exists():
            shutil.copymode(path, beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def make_ignored_folder(path: Path) -> None:
    """Make a folder, with a file that makes git ignore it, unless it exists."""
    if not path.exists():
        path.mkdir(parents=True, exist_ok=True)
        (path / ".gitignore").write_text("*\n")
