"""Source lines: the subject's own lines in a stack of torch's and the harness's lines.

The owner of a command asks as well, so this module imports no torch.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import sys
import threading
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType

import typing_extensions

_SPEC = importlib.util.find_spec("torch")
if _SPEC is None or _SPEC.origin is None:
    raise ModuleNotFoundError(
        "expected torch, which is not installed; pip install torch"
    )

_HARNESS = str(Path(__file__).parents[1])
# Adapters, planted defects and our own synchronizer are subjects, and so are their lines.
_SUBJECTS = tuple(
    str(Path(_HARNESS) / part) for part in ("subjects", "bugbank", "synchronizer")
)
_TORCH = str(Path(_SPEC.origin).parent)
# torch marks deprecated functions with a wrapper of `typing_extensions`.
_DEPRECATIONS = typing_extensions.__file__
_RUNTIME = str(Path(traceback.__file__).parent)
# Installed packages lie inside the runtime's folder, and a subject may be one.
_PACKAGES = str(Path(_TORCH).parent)
_DUMPED_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)

# Cached: there are few files, and every operator asks about some of them.
_IS_SUBJECT: dict[str, bool] = {}


def is_subject_line(filename: str) -> bool:
    """Tell whether a file is neither torch's, nor Python's, nor the harness's."""
    if filename.startswith(("<", _TORCH)) or filename == _DEPRECATIONS:
        return False
    if filename.startswith(_HARNESS):
        return filename.startswith(_SUBJECTS)
    return filename.startswith(_PACKAGES) or not filename.startswith(_RUNTIME)


def is_torch_line(filename: str) -> bool:
    """Tell whether a file is torch's."""
    return filename.startswith(_TORCH)


def calling_line() -> str:
    """Name the innermost subject line on the stack, such as `bucket.py:81 in launch`."""
    found = innermost_subject_line()
    return line_of(*found) if found else "unknown line"


def innermost_subject_line() -> tuple[CodeType, int] | None:
    """Return the subject's line on the stack as a code object and an instruction, or None.

    A recorder calls this for every operator. A line number costs more; `line_of` finds it
    when a report needs it.
    """
    frame: FrameType | None = sys._getframe(1)  # documented by Python
    while frame is not None:
        filename = frame.f_code.co_filename
        known = _IS_SUBJECT.get(filename)
        if known is None:
            known = _IS_SUBJECT[filename] = is_subject_line(filename)
        if known:
            return frame.f_code, frame.f_lasti
        frame = frame.f_back
    return None


def is_subject_above(depth: int) -> bool:
    """Tell whether the line that is so many calls above this one is the subject's."""
    filename = sys._getframe(depth).f_code.co_filename
    if filename not in _IS_SUBJECT:
        _IS_SUBJECT[filename] = is_subject_line(filename)
    return _IS_SUBJECT[filename]


def is_called_by(name: str) -> bool:
    """Tell whether a function of torch with this name is on the stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name == name and is_torch_line(code.co_filename):
            return True
        frame = frame.f_back
    return False


def line_of(code: CodeType, instruction: int) -> str:
    """Name the line of an instruction in the format of `calling_line`."""
    number = next(
        line for start, end, line in code.co_lines() if start <= instruction < end
    )
    return f"{_short(code.co_filename)}:{number} in {code.co_name}"


def outermost_frames(stack: Iterable[traceback.FrameSummary]) -> list[str]:
    """List the subject's lines of a stack, outermost call first, with their text."""
    return [
        f"{_short(frame.filename)}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in stack
        if is_subject_line(frame.filename)
    ]


def frames_in_dump(dump: str) -> list[str]:
    """List the subject's lines of the thread that keeps Python from running.

    Args:
        dump: The stacks of all threads, as `faulthandler` writes them.

    Returns:
        The lines in the format of `outermost_frames`; an empty list if none is known. The
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
    return not any(frame.filename.startswith(_HARNESS) for frame in stack)


@functools.cache
def _short(filename: str) -> str:
    return "/".join(Path(filename).parts[-2:])
