"""Jobs of torchrun in which no search can be made, because torchrun starts ranks again."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress

import psutil

from syncverify.command.process_exit import BAD_USAGE, HARNESS_FAILED, complain

# As an argument, which argparse lets a user shorten, and as a value of PET_NNODES.
_OPTION = re.compile(r"--nn\w*[=\0](\d+):(\d+)\0")
_RANGE = re.compile(r"(\d+):(\d+)")


def refuse_jobs_that_start_again() -> None:
    """End a rank of a job whose ranks were started again, or would be when machines change.

    torchrun takes exit code 1 for a crash, starts the job again with --max-restarts, and
    ends with the code of the last start. With --nnodes MIN:MAX it ends all ranks and starts
    them again when a machine joins or leaves, so that the first verdict is lost.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return
    count = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if count:
        _refuse(
            f"torchrun starts this job again (restart {count}), and nothing is played: the "
            "verdict of the first start is above; use --max-restarts 0",
            HARNESS_FAILED,
        )
    numbers = _numbers_of_machines(_arguments_of_parent())
    if numbers is not None and numbers[0] != numbers[1]:
        _refuse(
            f"expected a fixed --nnodes, got {numbers[0]}:{numbers[1]}: torchrun starts all "
            "ranks again when a machine joins or leaves, and the verdict is lost",
            BAD_USAGE,
        )


def _refuse(words: str, code: int) -> None:
    if os.environ["LOCAL_RANK"] == "0":  # one line from each machine
        complain(words, code)
    sys.exit(code)


def _arguments_of_parent() -> str:
    """Return torchrun's arguments, each with a zero after it; "" where nothing tells."""
    with suppress(psutil.Error):
        return "\0".join([*psutil.Process(os.getppid()).cmdline(), ""])
    return ""


def _numbers_of_machines(arguments: str) -> tuple[str, ...] | None:
    """Return the least and the largest number of machines of torchrun's --nnodes."""
    named = _OPTION.search(arguments)
    found = named or _RANGE.fullmatch(os.environ.get("PET_NNODES", ""))
    return found.groups() if found else None
