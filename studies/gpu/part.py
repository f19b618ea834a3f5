"""The result of one part, and the device on which parts run."""

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

State = Literal["passed", "failed", "not run"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one part.

    Attributes:
        state: Whether all that ran was right; `not run` where nothing could run.
        device: Type of the device on which the part ran: `cuda` or `cpu`.
        summary: One line: the result, or the reason for none.
        lines: Further lines of Markdown: tables and the text of failures.
    """

    state: State
    device: str
    summary: str
    lines: Sequence[str] = ()

    @staticmethod
    def of(wrong: Sequence[str], device: torch.device, summary: str) -> "Result":
        """Return a result that failed if there is a line about something wrong."""
        listed = tuple(f"- {line}" for line in wrong)
        state: State = "failed" if wrong else "passed"
        return Result(state, device.type, summary, listed)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the command.

    Attributes:
        name: Name for `--only`.
        title: Heading of the section on the page.
        about: The question that the part answers, and its answer on a CPU.
        run: Runs the part on a device.
    """

    name: str
    title: str
    about: str
    run: Callable[[torch.device], Result]


@functools.cache
def device_of_parts() -> torch.device:
    """Return the first GPU, or the CPU where there is none."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def transport_of(device: torch.device) -> Literal["nccl", "gloo"]:
    """Return the transport of process groups on a device."""
    return "nccl" if device.type == "cuda" else "gloo"


def environment() -> dict[str, str]:
    """Return the environment of commands that a part starts in the checkout."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}
