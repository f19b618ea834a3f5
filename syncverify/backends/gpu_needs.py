"""Exceptions of a subject that the simulated GPU causes, and that are no violation.

A subject that sees CUDA devices may call kernels, which see CPU tensors and raise.
Such an exception speaks of GPUs, or of an operator without a CPU kernel.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.plain_text import kind_of, message_of
from syncverify.program.subject_error import SubjectRaisedError
from syncverify.trace.source_lines import NoLine
from syncverify.trace.stacks import outermost_frames

_SPEAKS_OF_GPUS: Final = re.compile(
    r"cuda|triton|cupy|nvidia|nvml|\bgpus?\b|could not run .* from the 'cpu' backend",
    re.IGNORECASE,
)


@contextmanager
def refusing_what_needs_gpus() -> Iterator[None]:
    """Turn an exception about GPUs, of a subject that sees simulated GPUs, into a refusal.

    Raises:
        EnvironmentNotSupportedError: The subject went where `sim` cannot follow.
        SubjectRaisedError: The subject raised for another reason.
    """
    try:
        yield
    except SubjectRaisedError as error:
        original = next(filter(_speaks_of_gpus, _with_causes(error.original)), None)
        if original is None:
            raise
        raised = _in_words(original)
        lines = outermost_frames(traceback.extract_tb(original.__traceback__))
        raise EnvironmentNotSupportedError(
            f"the sim backend simulates CUDA for the subject's Python code, and no code "
            f"below Python, such as kernels: {raised}, at {lines[-1] if lines else NoLine.UNKNOWN};"
            " use nccl with GPUs, or a contract without device = 'cuda'"
        ) from error


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors behind it: the subject may have wrapped a kernel's."""
    known: list[BaseException] = []
    while error is not None and error not in known:
        yield error
        known.append(error)
        error = error.__cause__ or error.__context__


def _speaks_of_gpus(error: BaseException) -> bool:
    # An error of the subject may name the told device of a tensor.
    return bool(_SPEAKS_OF_GPUS.search(re.sub(r"cuda:\d+", "", _in_words(error))))


def _in_words(error: BaseException) -> str:
    return f"{kind_of(error)}: {message_of(error)}"
