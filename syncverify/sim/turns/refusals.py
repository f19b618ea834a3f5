"""Refusals: a run that needs a part that is not simulated is not judged.

A refusal is noted in the run at the moment it is made, and raised again when the run ends.
The subject gets an exception too, and may wrap it, keep it, or go on with wrong gradients:
that decides nothing any more.

An error that a real process group or a GPU would raise as well is no refusal. It is raised as
torch raises it, and is the subject's.

Simulated classes and modules refuse the names of torch that they do not answer: a release of torch
adds names. Torch's own function behind one would ask a real device or backend, and the error would
read like the subject's.
"""

import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any, Final, NoReturn, TypeVar

from typing_extensions import override

from syncverify.errors import EnvironmentNotSupportedError, SyncverifyError
from syncverify.holding import holding
from syncverify.trace.source_lines import CodeLine, NoLine, Origin
from syncverify.trace.stacks import calling_line

OWN_THREAD: Final = "let the rank's own thread do it"


class Refusals:
    """The refusals of one run, whose messages name the backend.

    `wake` ends the run although its rank may wait for ever, for a thread that is refused.
    `instead` says what to do about a thread that communicates.
    """

    def __init__(
        self,
        backend: str,
        wake: Callable[[], object],
        instead: str = f"{OWN_THREAD} (`syncverify run` has real processes, too: "
        "--backend gloo)",
    ) -> None:
        self.backend = backend
        self.wake = wake
        self.instead = instead
        # The refusal that counts, or the first error of the machine itself.
        self.first: SyncverifyError | None = None

    def note(self, refusal: SyncverifyError | None) -> None:
        """Note a refusal, or an error of the machine; None is none."""
        self.first = self.first or refusal

    def of_the_process(self) -> AbstractContextManager[Any]:
        """Receive the refusals of this process, for the length of a block.

        Patches of torch's names hold for the whole process as well, so that it plays one run
        at a time. A thread of the subject may outlive a run, and is then refused in the next.
        """
        return holding(_Process, "refusals", self)


class _Process:
    refusals: Refusals | None = None


def note_in_run(refusal: SyncverifyError | None) -> None:
    """Note a refusal or an error of the machine in the run of this process, if there is one."""
    if _Process.refusals is not None:
        _Process.refusals.note(refusal)


def refuse(feature: str, used_at: CodeLine | Origin | None = None) -> NoReturn:
    """Note that a feature, a noun, is not simulated, with the line of the subject that calls.

    Raises:
        EnvironmentNotSupportedError: Always.
    """
    run = _Process.refusals
    refusal = EnvironmentNotSupportedError(
        f"the {run.backend if run else 'sim'} backend does not simulate {feature}, used at "
        f"{used_at or calling_line()}"
    )
    note_in_run(refusal)
    raise refusal


def refusal(feature: str) -> Callable[..., Any]:
    """Make a function or a method that refuses a feature."""

    def refuse_feature(*_: Any, **__: Any) -> NoReturn:
        refuse(feature)

    return refuse_feature


def refuse_thread(act: str = "communicate") -> NoReturn:
    """Note that a thread of the subject acts beside its rank, and end the thread.

    The operating system decides when such a thread runs, so no simulated run is like it.

    Raises:
        SystemExit: Always. It ends a thread without a message.
    """
    run = _Process.refusals
    if run is not None:
        run.note(
            EnvironmentNotSupportedError(
                f"the {run.backend} backend does not simulate threads that {act} beside their "
                f"rank, as {_own_place()}; {run.instead}"
            )
        )
        run.wake()  # the rank may wait for this thread, and so for ever
    raise SystemExit


_THREAD = threading.local()


def enter_own_thread(started_at: Origin) -> None:
    """Say that the calling thread is one that the subject started, at some line."""
    _THREAD.is_subjects = True
    _THREAD.started_at = started_at


def _own_place() -> str:
    """Name the subject's line, or the start of a thread that has no line of the subject."""
    line = calling_line()
    started_at = getattr(_THREAD, "started_at", NoLine.UNKNOWN)
    if line != NoLine.UNKNOWN or started_at == NoLine.UNKNOWN:
        return f"at {line}"
    return f"in the thread that was started at {started_at}"


def is_own_thread() -> bool:
    """Tell whether the subject started the calling thread."""
    return getattr(_THREAD, "is_subjects", False)


Simulated = TypeVar("Simulated", bound=type)


def refuse_missing(name: str, *of_torch: type) -> NoReturn:
    """Refuse an attribute of torch's classes, of which messages name the first.

    Raises:
        EnvironmentNotSupportedError: Torch's objects have the attribute.
        AttributeError: They lack it, too.
    """
    title = of_torch[0].__name__
    if any(hasattr(each, name) for each in of_torch):
        refuse(f"{title}.{name}")
    raise AttributeError(f"{title!r} object has no attribute {name!r}")


def unanswered(own: type, of_torch: type, inherited: Collection[str]) -> list[str]:
    """Return the names that a simulated class has from torch's class, one of its bases, in order.

    Names of `inherited` are left out: they answer for a simulated object as well.
    """
    return [
        name
        for name in dir(of_torch)
        if not hasattr(object, name)
        and name not in inherited
        and name not in ("__dict__", "__module__", "__weakref__")
        and getattr(own, name) == getattr(of_torch, name)
    ]


def refusing_rest(
    of_torch: type, inherited: Collection[str]
) -> Callable[[Simulated], Simulated]:
    """Return a decorator that lets a class refuse the names that it does not answer."""

    def decorated(own: Simulated) -> Simulated:
        for name in unanswered(own, of_torch, inherited):
            title = f"{of_torch.__name__}.{name}"
            is_method = callable(getattr(of_torch, name))
            setattr(own, name, refusal(title) if is_method else RefusedAttribute(title))
        return own

    return decorated


class RefusedAttribute(property):
    """An attribute whose value no simulated object has."""

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = title

    @override
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else refuse(self._title)
