"""The error that a subject raised on a scenario that it has to play."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch.distributed as dist

from syncverify.errors import RunEndedError, SyncverifyError
from syncverify.plain_text import kind_of, message_of
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import Moment, Phase
from syncverify.trace.tensor_hooks import raised_in_tensor_hook


class SubjectRaisedError(Exception):
    """The subject raised on a legal scenario."""

    def __init__(
        self, moment: Moment, original: BaseException, *, in_tensor_hook: bool = False
    ) -> None:
        super().__init__(f"{moment}: {kind_of(original)}: {message_of(original)}")
        self.moment = moment
        self.original = original
        self.in_tensor_hook = in_tensor_hook


@contextmanager
def calling(
    recorder: Recorder, moment: Moment, method: Phase | None = None
) -> Iterator[None]:
    """Record a call of the subject, and tell its exceptions from the harness's.

    `method` is the name for exceptions where it is not the phase of the moment.

    Raises:
        SubjectRaisedError: The subject raised, or destroyed the default process group.
        SyncverifyError: The harness raised below the subject: an injected error, a refusal.
        RunEndedError: The run has ended, or the subject says so; its cause is the
            `SubjectRaisedError` that holds in the second case.
    """
    called = moment if method is None else replace(moment, phase=method)
    try:
        with recorder.calling(moment):
            yield
        _require_process_group()
    except SyncverifyError:
        raise
    except RunEndedError as error:  # who ended the run knows whether it has
        raise RunEndedError from SubjectRaisedError(called, error)
    # `sys.exit()` ends a rank as well. The user's Ctrl-C comes to the main thread, and no
    # rank plays there.
    except BaseException as error:  # the subject's, of any class
        in_hook = raised_in_tensor_hook(recorder.parameters.values(), error)
        raise SubjectRaisedError(called, error, in_tensor_hook=in_hook) from error


def raised_by_subject(error: BaseException) -> SubjectRaisedError | None:
    """Return the error of the subject that ended a rank: `error`, or the cause of a run's end."""
    raised = error.__cause__ if isinstance(error, RunEndedError) else error
    return raised if isinstance(raised, SubjectRaisedError) else None


def _require_process_group() -> None:
    """Refuse a subject that destroyed the default process group."""
    if not dist.is_initialized():
        raise RuntimeError("the default process group was destroyed")
