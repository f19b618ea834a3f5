"""Source lines: the subject's own lines in a stack of torch's and the harness's lines.

The owner of a command asks as well, so this module imports no torch.
"""

from __future__ import annotations

import functools
import importlib.util
import linecache
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from typing_extensions import override

_SPEC = importlib.util.find_spec("torch")
if _SPEC is None or _SPEC.origin is None:
    raise ModuleNotFoundError(
        "expected torch, which is not installed; pip install torch"
    )

# Folders end with a separator: another package may be called `torchlike`.
_HARNESS = str(Path(__file__).parents[1]) + os.sep
# Adapters, planted defects and our own synchronizer are subjects, and so are their lines.
_SUBJECTS = tuple(
    str(Path(_HARNESS) / part) + os.sep
    for part in ("subjects", "bugbank", "synchronizer")
)
_TORCH = str(Path(_SPEC.origin).parent) + os.sep
# Models and base classes of torch's own tests, which are a part of the tests.
_TESTS_OF_TORCH = tuple(
    str(Path(_TORCH) / "testing" / "_internal" / part)
    for part in (
        "common_",
        "distributed/_tensor",
        "distributed/_shard",
        "distributed/co",
    )
)
# Files of these that only pass calls on.
_WRAPPERS_OF_TESTS = tuple(
    str(Path(_TORCH) / "testing" / "_internal" / part)
    for part in ("common_utils.py", "common_distributed.py")
)
# FSDP2 is a subject that is written in Python and comes with torch.
_SHARDING = tuple(
    str(Path(_TORCH) / "distributed" / part)
    for part in ("fsdp/_fully_shard", "_composable/replicate_with_fsdp.py")
)
# Folders of torch whose lines `naming_torch` names, and files in them that only pass calls on.
_NAMED_OF_TORCH = tuple(
    str(Path(_TORCH) / part)
    for part in ("amp", "distributed", "nn", "optim", "utils/checkpoint.py")
)
_PASSING_ON = tuple(
    str(Path(_TORCH) / part)
    for part in (
        "distributed/c10d_logger.py",
        "distributed/distributed_c10d.py",
        "nn/modules/module.py",
        "optim/optimizer.py",
    )
)
_WITH_HOOKS = (
    str(Path(_HARNESS) / "program"),
    *(
        str(Path(_TORCH) / part)
        for part in (
            "autograd/graph.py",
            "distributed/_composable",
            "distributed/algorithms",
            "distributed/fsdp",
            "nn/parallel",
            "utils/checkpoint.py",
        )
    ),
)
# Parts of torch that hand devices to C++ code, or print them, and one that compares those of
# a forward, which a training program may run, with those of a backward.
_NEAR_KERNELS = tuple(
    str(Path(_TORCH) / part)
    for part in (
        "_decomp",
        "_dynamo",
        "_functorch",
        "_higher_order_ops",
        "_inductor",
        "_ops.py",
        "_prims",
        "_refs",
        "_subclasses",
        "_tensor_str.py",
        "distributed/tensor/_dispatch.py",
        "fx",
        "jit",
        "library.py",
        "utils/checkpoint.py",
    )
)
_RUNTIME = str(Path(traceback.__file__).parent)
# Installed packages lie inside the runtime's folder, and a subject may be one.
_PACKAGES = str(Path(_TORCH).parent)
# Frames shown of one call: the line, and the lines that led to it.
_NUM_FRAMES = 3
# Autograd calls hooks from C++, below this function of torch: the lines that called
# `backward()` did not ask for what the engine does on its own.
_ENGINE = "_engine_run_backward"
_NAME = re.compile(r"[\w-]+")  # the package at the start of a requirement
_DUMPED_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)

# Code objects and instructions, innermost call first.
RawFrames = tuple[tuple[CodeType, int], ...]

# Cached: there are few files, and every operator asks about some of them.
_IS_SUBJECT: dict[str, bool] = {}
_SEES_DEVICE: dict[str, bool] = {}
_IS_NAMED: dict[str, bool] = {}
_names_torch = False


class NoLine(Enum):
    """The origin of work that no line of the subject started."""

    AUTOGRAD = "autograd"
    OPTIMIZER = "optimizer"
    RETURN = "the return of the program"
    UNKNOWN = "unknown line"

    @override
    def __str__(self) -> str:
        return self.value


class SourceLine(NamedTuple):
    """A line of Python code; printed as `bucket.py:81 in launch`.

    Attributes:
        path: Path of the file, below the working directory or absolute.
        number: Number of the line, from 1.
        function: Name of the function that has the line; "" outside of functions.
    """

    path: str
    number: int
    function: str

    @override
    def __str__(self) -> str:
        within = f" in {self.function}" if self.function else ""
        return f"{self.path}:{self.number}{within}"

    @property
    def file(self) -> str:
        """Return the absolute path of the file."""
        return str(Path(self.path).absolute())


class CodeLine(NamedTuple):
    """A line with its code; printed as `bucket.py:81 in launch: work = all_reduce(...)`."""

    line: SourceLine
    code: str

    @override
    def __str__(self) -> str:
        return f"{self.line}: {self.code}"


Origin = SourceLine | NoLine


def is_subject_line(filename: str) -> bool:
    """Tell whether a file is neither torch's, its helpers', Python's, nor the harness's."""
    if filename.startswith(_TESTS_OF_TORCH):
        return True
    if filename.startswith(("<", _TORCH, *helpers_of_torch())):
        return False
    if filename.startswith(_HARNESS):
        return filename.startswith(_SUBJECTS)
    return filename.startswith(_PACKAGES) or not filename.startswith(_RUNTIME)


def is_harness_line(filename: str) -> bool:
    """Tell whether a file is the harness's, and of none of its subjects."""
    return filename.startswith(_HARNESS) and not filename.startswith(_SUBJECTS)


@functools.cache
def helpers_of_torch() -> tuple[str, ...]:
    """Return the folders and files of the packages that torch requires, or may use.

    torch calls them within backward: `typing_extensions` wraps its deprecated functions, and
    `optree` maps over the arguments of an operator of DTensor.
    """
    from importlib import metadata  # 20 ms that the owner of a command does not need

    try:
        required = metadata.requires("torch") or []
    except metadata.PackageNotFoundError:  # built in a checkout of torch
        required = ["optree", "sympy", "typing_extensions"]
    names = {each.group() for each in map(_NAME.match, required) if each}
    specs = [importlib.util.find_spec(name.replace("-", "_")) for name in sorted(names)]
    files = [Path(spec.origin) for spec in specs if spec is not None and spec.origin]
    return tuple(
        str(file.parent) + os.sep if file.name == "__init__.py" else str(file)
        for file in files
    )


def is_engine(code: CodeType) -> bool:
    """Tell whether a function is torch's last one before its engine, which calls hooks."""
    return code.co_name == _ENGINE and is_torch_line(code.co_filename)


def may_hold_hooks(filename: str) -> bool:
    """Tell whether functions of a file that the engine calls are hooks.

    Hooks are the subject's, the training program's, or those of torch's own wrappers.

    Returns:
        Whether it is a file of one of them.
    """
    return filename.startswith(_WITH_HOOKS) or is_subject_line(filename)


def is_torch_line(filename: str) -> bool:
    """Tell whether a file is torch's."""
    return filename.startswith(_TORCH)


def calling_frames() -> tuple[Origin, tuple[SourceLine, ...]]:
    """Return the innermost line of the subject on the stack, and those that led to it."""
    raw = subject_frames() or subject_frames(is_asked_by_autograd=True)
    source, *callers = frames_of(raw) or (NoLine.UNKNOWN,)
    return source, tuple(callers)


def calling_line() -> Origin:
    """Return the innermost line of the subject on the stack."""
    return calling_frames()[0]


def subject_frames(*, is_asked_by_autograd: bool = False) -> RawFrames:
    """Return the subject's lines on the stack as code objects and instructions, FSDP2's too.

    The innermost line comes first, then the lines that called it, up to three in all. A
    recorder calls this for every operator. A line number costs more; `frames_of` finds it
    when a report needs it.

    Args:
        is_asked_by_autograd: Whether to name the lines that called `backward()`, too.

    Returns:
        An empty tuple if autograd or the harness called the operator.
    """
    found: list[tuple[CodeType, int]] = []
    frame: FrameType | None = sys._getframe(1)  # documented by Python
    while frame is not None and len(found) < _NUM_FRAMES:
        code = frame.f_code
        known = _IS_NAMED.get(code.co_filename)
        if known is None:
            known = _is_named(code.co_filename)
        if known:
            found.append((code, frame.f_lasti))
        elif (
            code.co_name == _ENGINE
            and not is_asked_by_autograd
            and is_torch_line(code.co_filename)
        ):
            break
        frame = frame.f_back
    return tuple(found)


def _is_subject(filename: str) -> bool:
    known = _IS_SUBJECT[filename] = is_subject_line(filename)
    return known


@contextmanager
def naming_torch(*, is_on: bool = True) -> Iterator[None]:
    """Name torch's own lines in traces, as those of a subject, for the length of a block."""
    global _names_torch  # asked for every operator
    before, _names_torch = _names_torch, is_on
    _IS_NAMED.clear()
    try:
        yield
    finally:
        _names_torch = before
        _IS_NAMED.clear()


def _is_named(filename: str) -> bool:
    known = filename.startswith(_SHARDING) or is_subject_line(filename)
    if filename.startswith(_WRAPPERS_OF_TESTS):
        known = False
    if _names_torch and filename.startswith(_NAMED_OF_TORCH):
        known = not filename.startswith(_PASSING_ON)
    _IS_NAMED[filename] = known
    return known


def with_code(origins: Iterable[Origin]) -> tuple[CodeLine, ...]:
    """Return lines with their code; without those whose file is gone."""
    lines = lines_among(origins)
    return tuple(CodeLine(each, code) for each in lines if (code := code_of_line(each)))


def lines_among(origins: Iterable[Origin]) -> tuple[SourceLine, ...]:
    """Return the origins that are lines of the subject."""
    return tuple(each for each in origins if isinstance(each, SourceLine))


def is_subject_above(depth: int) -> bool:
    """Tell whether the line that is so many calls above this one is the subject's."""
    filename = sys._getframe(depth).f_code.co_filename
    return _IS_SUBJECT[filename] if filename in _IS_SUBJECT else _is_subject(filename)


def sees_device_above(depth: int) -> bool:
    """Tell whether the line that is so many calls above this one sees a simulated device.

    Args:
        depth: Number of calls.

    Returns:
        False for lines of the harness, and for those of torch that are near to kernels.
    """
    filename = sys._getframe(depth).f_code.co_filename
    known = _SEES_DEVICE.get(filename)
    if known is None:
        is_apart = is_harness_line(filename) or filename.startswith(_NEAR_KERNELS)
        known = _SEES_DEVICE[filename] = not is_apart
    return known


def is_called_by(name: str) -> bool:
    """Tell whether a function of torch with this name is on the stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == name and is_torch_line(code.co_filename):
            return True
        frame = frame.f_back
    return False


def frames_of(raw: RawFrames) -> tuple[SourceLine, ...]:
    """Return the lines of `subject_frames`, in its order."""
    return tuple(line_of(code, instruction) for code, instruction in raw)


def line_of(code: CodeType, instruction: int) -> SourceLine:
    """Return the line of an instruction."""
    number = next(
        line for start, end, line in code.co_lines() if start <= instruction < end
    )
    return SourceLine(shown_path(code.co_filename), number or 0, code.co_name)


def code_of_line(line: SourceLine) -> str:
    """Return the code of a line; "" where there is no such file."""
    return linecache.getline(line.file, line.number).strip()


def outermost_frames(stack: Iterable[traceback.FrameSummary]) -> list[CodeLine]:
    """List the subject's lines of a stack, outermost call first, with their code."""
    return [
        CodeLine(
            SourceLine(shown_path(frame.filename), frame.lineno or 0, frame.name),
            frame.line or "",
        )
        for frame in stack
        if is_subject_line(frame.filename)
    ]


def frames_in_dump(dump: str) -> list[CodeLine]:
    """List the subject's lines of the thread that keeps Python from running.

    Args:
        dump: The stacks of all threads, as `faulthandler` writes them.

    Returns:
        The lines, outermost call first; an empty list if none is known. The
        dump does not say which thread holds the GIL. A thread in a wait of `threading`
        does not hold it, and a rank is more probable than a thread of the subject.
    """
    stacks = [
        [
            traceback.FrameSummary(filename, int(line), name)
            for filename, line, name in reversed(_DUMPED_FRAME.findall(thread))
        ]
        for thread in dump.split("\n\n")
    ]
    stuck = [
        stack
        for stack in stacks
        if outermost_frames(stack) and stack[-1].filename != threading.__file__
    ]
    stuck.sort(key=_is_of_subject)
    return outermost_frames(stuck[0]) if stuck else []


def _is_of_subject(stack: Iterable[traceback.FrameSummary]) -> bool:
    """Tell whether a thread runs no line of the harness, as one that the subject started."""
    return not any(
        frame.filename.startswith(_HARNESS) and not is_subject_line(frame.filename)
        for frame in stack
    )


def shown_path(filename: str) -> str:
    """Return a path that an editor opens: below the current folder, or absolute."""
    return _shown(filename, working_directory())


def working_directory() -> str:
    """Return the working directory; "" if it was deleted."""
    try:
        return os.getcwd()  # noqa: PTH109  # for every operator
    except FileNotFoundError:
        return ""


@functools.cache
def _shown(filename: str, folder: str) -> str:
    path = Path(filename)
    is_below = folder and path.is_relative_to(folder)
    return str(path.relative_to(folder) if is_below else path)
