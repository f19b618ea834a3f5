"""Which lines of the functions of a subject run while scenarios are played.

Note [Functions are probed, and nothing else]
    A tracer sees every call of the process, also those of torch and of the harness, and
    makes a search half as long again. SlipCover puts probes into the functions of the subject
    alone: by `sys.monitoring`, or before Python 3.12 into their bytecode. Module code and
    class bodies ran when the subject was imported, so they do not count.
"""

import functools
import gc
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from slipcover.slipcover import Slipcover

from syncverify.trace.source_files import is_own_line

_NEVER: Final = 2**31 - 1  # of times a probe is met again before SlipCover takes it out
_HARNESS: Final = __name__.partition(".")[0]
# Our own synchronizer is a subject like any other.
_OWN_SUBJECT: Final = f"{_HARNESS}.synchronizer"
_FOREIGN: Final = frozenset({"", "torch", _HARNESS, *sys.stdlib_module_names})
_TESTS: Final = ("test_", "conftest")

_WRAPPERS: Final = (FunctionType, type(functools.cache(len)))


@dataclass(frozen=True, slots=True)
class PlayedLines:
    """Numbers of the lines in functions of one file: all that can run, and those that ran."""

    all: frozenset[int]
    played: frozenset[int]


def merged_lines(parts: list[Mapping[str, PlayedLines]]) -> dict[str, PlayedLines]:
    """Combine the lines of several processes, by file."""
    together: dict[str, PlayedLines] = {}
    for part in parts:
        for path, new in part.items():
            known = together.get(path, new)
            together[path] = PlayedLines(known.all | new.all, known.played | new.played)
    return together


@contextmanager
def played_lines(
    factory: Callable[..., object] | None,
) -> Iterator[Mapping[str, PlayedLines]]:
    """Probe the functions of a subject; after the block, the yielded mapping has the lines.

    It has the files of which a function ran. None probes nothing.
    """
    played: dict[str, PlayedLines] = {}
    if factory is None or (probe := _new_probe()) is None:
        yield played
        return
    codes: dict[FunctionType, CodeType] = {}
    probed: dict[CodeType, CodeType] = {}
    for function in _functions(factory):
        code = codes[function] = function.__code__
        if code not in probed:
            probed[code] = probe.instrument(code)
        function.__code__ = probed[code]
    try:
        yield played
    finally:
        gc.collect()  # finalizers run now and not by chance: their lines count as well
        for function, code in codes.items():
            function.__code__ = code
        files: dict[str, Any] = probe.get_coverage()["files"] if codes else {}
        for path, lines in files.items():
            if ran := frozenset(lines["executed_lines"]):
                played[path] = PlayedLines(ran | {*lines["missing_lines"]}, ran)


def _new_probe() -> Slipcover | None:
    """Return a probe; None where another tool of the process counts lines by `sys.monitoring`."""
    try:
        probe = Slipcover(d_miss_threshold=_NEVER)
    except ValueError:
        return None
    if sys.version_info >= (3, 12):
        sys.monitoring.restart_events()  # lines that a probe before this one has seen
    return probe


def _functions(factory: Callable[..., object]) -> Iterator[FunctionType]:
    """Yield the Python functions of the modules of a subject, each once."""
    seen: set[int] = set()
    for module in modules_of(factory):
        path = getattr(module, "__file__", None)
        for function in functions_of(module, seen):
            if function.__code__.co_filename == path:
                yield function


def modules_of(factory: Callable[..., object]) -> list[ModuleType]:
    """Return the module of a factory, and the packages of its bases, as far as they are loaded.

    The packages of what the module of the factory imports count as well, so that a class
    that wraps a synchronizer brings the synchronizer. Installed packages do not, nor do
    other tests: pytest loads them all, hundreds of files maybe, and no subject plays them.
    """
    own = sys.modules.get(getattr(factory, "__module__", None) or "")
    bases = inspect.getmro(factory) if inspect.isclass(factory) else ()
    imported = vars(own).values() if own else ()
    names = {_module_name(each) for each in (*bases, *imported)}
    roots = {_package(name) for name in names} - _FOREIGN
    return [
        module
        for name, module in [*sys.modules.items()]
        if module is own
        or (
            _package(name) in roots
            and (name in names or not name.rpartition(".")[2].startswith(_TESTS))
            and is_own_line(getattr(module, "__file__", None) or "")
        )
    ]


def _package(name: str) -> str:
    """Return the package that a module belongs to, as a subject or as a library does."""
    if f"{name}.".startswith(f"{_OWN_SUBJECT}."):
        return _OWN_SUBJECT
    return name.partition(".")[0]


def _module_name(value: object) -> str:
    """Return the name of a module, or of that of a class or function; "" for other values."""
    if isinstance(value, ModuleType):
        return value.__name__
    is_code = isinstance(value, type | FunctionType)
    return str(value.__module__) if is_code else ""


def functions_of(owner: object, seen: set[int]) -> Iterator[FunctionType]:
    """Yield the functions in the namespace of a module or class, and what they wrap."""
    name = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
    for value in [*vars(owner).values()]:
        for each in _unwrapped(value):
            if id(each) in seen:
                continue
            seen.add(id(each))
            if type(each) is FunctionType:
                yield each
            elif isinstance(each, type) and each.__module__ == name:
                yield from functions_of(each, seen)


def _unwrapped(value: object) -> Iterator[object]:
    """Yield a value, and the functions in it if it is a descriptor or a decorated function."""
    yield value
    if isinstance(value, property):
        yield from (each for each in (value.fget, value.fset, value.fdel) if each)
    elif isinstance(value, classmethod | staticmethod):
        yield from _unwrapped(value.__func__)
    elif isinstance(value, functools.cached_property):
        yield value.func
    elif type(value) in _WRAPPERS and "__wrapped__" in vars(value):
        yield from _unwrapped(vars(value)["__wrapped__"])
