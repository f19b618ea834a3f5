"""A subject as bytes for another process, by value where it cannot be imported there."""

from __future__ import annotations

import pickletools
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import cloudpickle

from syncverify.playing.program.modules import provide_layers
from syncverify.subjects.subject import Subject


def pack_subject(subject: Subject) -> bytes:
    """Pickle a subject for another process, by value where it cannot be imported there."""
    by_value: list[ModuleType] = []
    try:
        while True:
            packed: bytes = cloudpickle.dumps(subject)
            found = [
                module
                for module in _named_modules(packed)
                if module not in by_value and not _can_be_imported(module)
            ]
            if not found:
                return packed
            for module in found:
                cloudpickle.register_pickle_by_value(module)
                by_value.append(module)
    finally:
        for module in by_value:
            cloudpickle.unregister_pickle_by_value(module)


def _named_modules(packed: bytes) -> list[ModuleType]:
    """Return the imported modules that a pickle names, as imports or as text."""
    arguments = (argument for _, argument, _ in pickletools.genops(packed))
    names = dict.fromkeys(name for name in arguments if isinstance(name, str))
    return [sys.modules[name] for name in names if name in sys.modules]


def _can_be_imported(module: ModuleType) -> bool:
    """Tell whether another interpreter with our `sys.path` would find the module."""
    # Test runners load files under names that exist in this process only. A module without
    # a file has no code to pickle.
    file = getattr(module, "__file__", None)
    parts = module.__name__.split(".")
    if not isinstance(file, str) or not Path(file).is_file():
        return True
    if parts[0] in {*sys.stdlib_module_names, "__main__", "syncverify"}:
        return True  # see Note [Every process imports this package]
    path: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    for depth in range(len(parts)):
        spec = _find(".".join(parts[: depth + 1]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    # An entry of `sys.path` may have `..` or a link in it, and so has the name of the file then.
    origin = None if spec is None else spec.origin
    return origin is not None and Path(origin).resolve() == Path(file).resolve()


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    # importlib.util.find_spec would ask sys.modules first.
    specs = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)


def unpack_subject(packed: bytes) -> Subject:
    """Unpickle the result of `pack_subject`, and let scenarios train the layers of its contract."""
    subject: Subject = cloudpickle.loads(packed)
    provide_layers(subject.capabilities)
    return subject
