"""Errors of the simulated machine itself, apart from those that it raises as torch does.

Note [An error of the machine]
    A subject calls the machine behind torch's names, so an error of the machine comes back
    through the subject, which may wrap it or keep it. It would be judged as the subject's. The
    machine raises on purpose by `raise`, as torch raises, and that is the subject's error. These
    are the machine's:

    * an error that any other statement of its files raises: a missing attribute, a missing key,
      a failed `assert`;
    * a missing attribute of an object of its own, wherever it is read. An object in the place of
      one of torch's refuses the names that it lacks: `refusals.py`.

    A call may lead into torch's C++ code, which leaves no frame of its own and raises for
    arguments of the subject. So of the errors of calls only those count that C++ code never
    raises.
"""

import dis
import functools
import inspect
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from syncverify.errors import InternalError
from syncverify.plain_text import in_one_line, kind_of, message_of
from syncverify.sim.turns.refusals import note_in_run
from syncverify.trace import source_files as files
from syncverify.trace.source_lines import NoLine, Origin, shown_path
from syncverify.trace.stacks import calling_line, outermost_frames

_PARTS: Final = ("syncverify.playing", "syncverify.sim", "syncverify.trace")
_ROOT: Final = Path(__file__).parents[2]
_FOLDERS: Final = tuple(
    f"{_ROOT / part.removeprefix('syncverify.')}/" for part in _PARTS
)
# What runs on the machine is a part of none.
_PROGRAM: Final = "syncverify.playing.program"
_PROGRAM_FOLDER: Final = f"{_ROOT / 'playing' / 'program'}/"
_OWNERS: Final = files.is_harness_line, files.is_torch_line, files.is_subject_line
_OF_CALLS: Final = (AttributeError, NameError, KeyError, AssertionError)
_OF_STATEMENTS: Final = (
    *_OF_CALLS, ArithmeticError, IndexError, TypeError, ValueError,
)  # fmt: skip

Machine = TypeVar("Machine", bound=type)


def noting_own_errors(*names: str) -> Callable[[Machine], Machine]:
    """Return a decorator of a class: its methods note errors of the machine in the run.

    Without names, all methods do that the class defines without underscores.
    """

    def decorated(own: Machine) -> Machine:
        for name, method in [*vars(own).items()]:
            is_meant = name in names if names else not name.startswith("_")
            if is_meant and inspect.isfunction(method):
                setattr(own, name, _noting(method))
        return own

    return decorated


def _noting(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def noting(*args: Any, **kwargs: Any) -> Any:
        with OWN_ERRORS_NOTED:
            return method(*args, **kwargs)

    return noting


class _OwnErrorsNoted:
    """A block whose errors of the machine are noted in the run; for any thread, also nested."""

    def __enter__(self) -> None:
        """Do nothing; no frame of a block's own is on the stack, as lines are counted."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            note_in_run(own_error_behind(error, calling_line()))


OWN_ERRORS_NOTED: Final = _OwnErrorsNoted()


def own_error_behind(
    error: BaseException, called_at: Origin = NoLine.UNKNOWN
) -> InternalError | None:
    """Return the error of the machine that an error is, wraps or follows; None if there is none.

    See Note [An error of the machine]. `called_at` is the line of the subject that called the
    machine, if the error, which reached the subject, has none.
    """
    for each in with_causes(error):
        if (place := _place_of(each)) is not None:
            lines = outermost_frames(traceback.extract_tb(error.__traceback__))
            line = lines[-1] if lines else called_at
            called = "" if line == NoLine.UNKNOWN else f", called at {line}"
            words = in_one_line(f"{kind_of(each)}: {message_of(each)}")
            return InternalError(f"{words}, at {place}{called}")
    return None


def with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and the errors that it was raised from or after."""
    known: list[BaseException] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each is not None and each not in known:
            known.append(each)
            yield each
            waiting += [each.__context__, each.__cause__]


def _place_of(error: BaseException) -> str | None:
    """Return the place of the machine that raised an error; None if it is not the machine's."""
    raised = _raised_in(error.__traceback__)
    file = "" if raised is None else raised.tb_frame.f_code.co_filename
    is_of_machine = file.startswith(_FOLDERS) and not file.startswith(_PROGRAM_FOLDER)
    if raised is not None and is_of_machine:
        return _shown(raised) if _is_slip(error, raised) else None
    if isinstance(error, AttributeError) and _is_of_machine(error.obj):
        return f"{type(error.obj).__module__}.{type(error.obj).__name__}"
    return None


def _raised_in(trace: TracebackType | None) -> TracebackType | None:
    """Return the innermost entry that is of torch, of the harness or of the subject."""
    found: TracebackType | None = None
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if any(is_of(filename) for is_of in _OWNERS):
            found = trace
        trace = trace.tb_next
    return found


def _is_slip(error: BaseException, raised: TracebackType) -> bool:
    """Tell whether a line of the machine raised an error without wanting to."""
    if raised.tb_next is not None:  # in a function of Python that it called
        return isinstance(error, _OF_CALLS)
    operation = dis.opname[raised.tb_frame.f_code.co_code[raised.tb_lasti]]
    if operation == "RAISE_VARARGS":
        return isinstance(error, AssertionError)
    is_call = operation.startswith("CALL")
    return isinstance(error, _OF_CALLS if is_call else _OF_STATEMENTS)


def _is_of_machine(owner: object) -> bool:
    """Tell whether an object is the machine's, and of no class of torch."""
    modules = [each.__module__ for each in type(owner).__mro__]
    is_torch = any(each.partition(".")[0] == "torch" for each in modules)
    is_program = modules[0].startswith(_PROGRAM)
    return modules[0].startswith(_PARTS) and not (is_torch or is_program)


def _shown(raised: TracebackType) -> str:
    code = raised.tb_frame.f_code
    return f"{shown_path(code.co_filename)}:{raised.tb_lineno} in {code.co_name}"
