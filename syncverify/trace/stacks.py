"""The subject's own lines in a stack of torch's and the harness's lines."""

import functools
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType

from syncverify.processes import thread_signal
from syncverify.trace import source_files as files
from syncverify.trace.source_lines import (
    CodeLine,
    NoLine,
    Origin,
    SourceLine,
    shown_path,
)

# Number of frames shown of one call: the line, and the lines that led to the line.
_NUM_FRAMES = 3
_DUMPED_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)

# Files of functions in which a thread waits for another one.
_WAITS = (threading.__file__, thread_signal.__file__)

# Code objects and instructions, innermost call first.
RawFrames = tuple[tuple[CodeType, int], ...]


def calling_frames() -> tuple[Origin, tuple[SourceLine, ...]]:
    """Return the innermost line of the subject on the stack, and those that led to it."""
    raw = subject_frames() or subject_frames(is_asked_by_autograd=True)
    source, *callers = frames_of((*raw, *_program_frame(raw))) or (NoLine.UNKNOWN,)
    return source, tuple(callers)


def calling_line() -> Origin:
    """Return the innermost line of the subject on the stack."""
    raw = subject_frames(most=1) or subject_frames(is_asked_by_autograd=True, most=1)
    return line_of(*raw[0]) if raw else NoLine.UNKNOWN


def frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame and all frames that led to it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def is_issued_by_torch() -> bool:
    """Tell whether torch's own code calls a function of `torch.distributed`, as `Join` does."""
    is_within = False
    for frame in frames_from(sys._getframe(1)):
        filename = frame.f_code.co_filename
        if files.is_subject_line(filename):
            break
        if files.is_call_of_group(filename):
            is_within = True
        elif is_within and files.is_torch_line(filename):
            return True
    return False


def ordering_line() -> Origin:
    """Return the line of the subject that orders streams; none for the training program's calls.

    A subject may run the forward of the training program, whose own streams wait for each
    other: these calls are no lines of the subject, although its line is on the stack.
    """
    for frame in frames_from(sys._getframe(1)):
        if files.is_named(frame.f_code.co_filename):
            break
        if files.is_program_line(frame.f_code.co_filename):
            return NoLine.UNKNOWN
    return calling_line()


def subject_frames(
    *, is_asked_by_autograd: bool = False, most: int = _NUM_FRAMES
) -> RawFrames:
    """Return the subject's lines on the stack as code objects and instructions, FSDP2's too.

    The innermost line comes first, then the lines that called it. A recorder calls this for every
    operator, so it finds no line numbers, which cost more: `frames_of` does when a report needs
    them. There are no lines if autograd or the harness called the operator; with
    `is_asked_by_autograd`, the lines that called `backward()` are meant as well.
    """
    found: list[tuple[CodeType, int]] = []
    frame: FrameType | None = sys._getframe(1)  # documented by Python
    while frame is not None and len(found) < most:
        code = frame.f_code
        if files.is_named(code.co_filename):
            found.append((code, frame.f_lasti))
        elif not is_asked_by_autograd and files.is_engine(code):
            break
        frame = frame.f_back
    return tuple(found)


def _program_frame(raw: RawFrames) -> RawFrames:
    """Return the innermost line of a program, where all named lines are FSDP2's.

    The harness's own subject of FSDP2 has no line that a reader can mend.
    """
    if not raw or not all(files.is_torch_line(code.co_filename) for code, _ in raw):
        return ()
    for frame in frames_from(sys._getframe(1)):
        filename = frame.f_code.co_filename
        if files.is_subject_line(filename) and not files.is_harness_subject(filename):
            return ((frame.f_code, frame.f_lasti),)
    return ()


def is_subject_above(depth: int) -> bool:
    """Tell whether the line that is so many calls above this one is the subject's."""
    return files.is_subject_line(sys._getframe(depth).f_code.co_filename)


def sees_device_above(depth: int) -> bool:
    """Tell whether the line that is so many calls above this one sees a simulated device."""
    return files.sees_devices(sys._getframe(depth).f_code.co_filename)


def is_called_by(name: str) -> bool:
    """Tell whether a function of torch with this name is on the stack."""
    codes = (frame.f_code for frame in frames_from(sys._getframe(1)))
    return any(c.co_name == name and files.is_torch_line(c.co_filename) for c in codes)


def frames_of(raw: RawFrames) -> tuple[SourceLine, ...]:
    """Return the lines of `subject_frames`, in its order."""
    return tuple(line_of(code, instruction) for code, instruction in raw)


def line_of(code: CodeType, instruction: int) -> SourceLine:
    """Return the line of an instruction."""
    return SourceLine(
        shown_path(code.co_filename), _numbers_of(code)[instruction // 2], code.co_name
    )


@functools.lru_cache(maxsize=1024)  # a recording asks for the same few functions
def _numbers_of(code: CodeType) -> tuple[int, ...]:
    """Return the line of each instruction of a function, two bytes each; 0 for none."""
    return tuple(
        line or 0 for start, end, line in code.co_lines() for _ in range(start, end, 2)
    )


def outermost_frames(stack: Iterable[traceback.FrameSummary]) -> list[CodeLine]:
    """List the subject's lines of a stack once each, outermost call first, with their code."""
    lines = (
        CodeLine(
            SourceLine(shown_path(frame.filename), frame.lineno or 0, frame.name),
            frame.line or "",
        )
        for frame in stack
        if files.is_subject_line(frame.filename)
    )
    return [*dict.fromkeys(lines)]


def frames_in_dump(dump: str) -> list[CodeLine]:
    """Return the subject's lines of the thread that keeps Python from running, outermost first.

    A dump has the stacks of all threads, as `faulthandler` writes them, and does not say which
    thread holds the GIL. A thread in a wait of `threading` or of a signal does not hold it, and a
    rank is more probable than a thread of the subject.
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
        if outermost_frames(stack) and stack[-1].filename not in _WAITS
    ]
    # A thread that the subject started runs no line of the harness, and comes last.
    stuck.sort(
        key=lambda stack: not any(files.is_harness_line(e.filename) for e in stack)
    )
    return outermost_frames(stuck[0]) if stuck else []
