"""Exceptions of a subject that the simulated GPU causes, and that are no violation.

A subject that sees CUDA devices may call kernels, which see CPU tensors and raise.
Such an exception speaks of GPUs, or of an operator without a CPU kernel.
"""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from syncverify.errors import EnvironmentNotSupportedError
from syncverify.plain_text import in_one_line, kind_of, message_of
from syncverify.playing.program.subject_error import SubjectRaisedError
from syncverify.sim.turns.own_errors import with_causes
from syncverify.sim.turns.refusals import refuse
from syncverify.trace.source_lines import CodeLine, NoLine
from syncverify.trace.stacks import outermost_frames

_SPEAKS_OF_GPUS: Final = re.compile(
    r"cuda|triton|cupy|nvidia|nvml|\bgpus?\b|could not run .* from the 'cpu' backend",
    re.IGNORECASE,
)

# Errors that a torch for CUDA, on a machine with a GPU, does not raise.
_NEEDS_A_GPU: Final = re.compile(
    r"ATen_cuda|module 'torch\._C' has no attribute '_(cuda|nccl)|NVIDIA driver|"
    r"not (compiled|linked) with (CUDA|support for cuda)|hook required CUDA|"
    r"no pinned memory allocator|Cannot access accelerator device when none|"
    r"CUDA driver version is insufficient|no CUDA-capable device|dummy base class|"
    r"_for_cpu\b|could not run .* from the 'cpu' backend|No module named 'triton",
    re.IGNORECASE,
)


@contextmanager
def refusing_what_needs_gpus() -> Iterator[None]:
    """Refuse a subject with simulated GPUs that raises an exception about real ones."""
    try:
        yield
    except SubjectRaisedError as error:
        # The subject may have wrapped a kernel's error.
        original = next(filter(_speaks_of_gpus, with_causes(error.original)), None)
        if original is None:
            raise
        raise EnvironmentNotSupportedError(
            f"the sim backend simulates CUDA for the subject's Python code, and no code "
            f"below Python, such as kernels: {_in_words(original)}, at {_origin(original)};"
            " use nccl with GPUs, or a contract without device = 'cuda'"
        ) from error


def refuse_need_of_gpu(error: BaseException) -> None:
    """Refuse an exception of a program that torch raises only where there is no GPU.

    Any other exception is the program's, also one of its own that speaks of GPUs.
    """
    if _NEEDS_A_GPU.search(message_of(error)):
        needed = in_one_line(_in_words(error).partition(". ")[0])
        refuse(f"what needs a real GPU ({needed})", _origin(error))


def _origin(error: BaseException) -> CodeLine | NoLine:
    """Return the subject's line that is nearest to an exception."""
    lines = outermost_frames(traceback.extract_tb(error.__traceback__))
    return lines[-1] if lines else NoLine.UNKNOWN


def _speaks_of_gpus(error: BaseException) -> bool:
    # An error of the subject may name the device that a tensor seems to be on.
    return bool(_SPEAKS_OF_GPUS.search(re.sub(r"cuda:\d+", "", _in_words(error))))


def _in_words(error: BaseException) -> str:
    return f"{kind_of(error)}: {message_of(error)}"
