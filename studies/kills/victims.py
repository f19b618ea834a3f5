"""The processes of one command: found by a mark in their environment, and signalled."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from typing import Literal

import psutil

MARK = "SYNCVERIFY_KILLS"
_TEMPLATE = "syncverify.processes.template"

Kind = Literal["owner", "child", "template", "worker"]


@dataclass(frozen=True, slots=True)
class Victim:
    """One process of a command.

    Attributes:
        pid: Id of the process.
        kind: Part of the command that the process plays.
    """

    pid: int
    kind: Kind


def living(mark: str, owner: int) -> list[Victim]:
    """List the processes with a mark in their environment, zombies left out."""
    return [
        Victim(each.pid, _kind(each, owner))
        for each in psutil.process_iter(["environ"])
        if (each.info["environ"] or {}).get(MARK) == mark
    ]


def send(victim: Victim, number: signal.Signals) -> bool:
    """Send a signal; return False if the process has ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim.pid, number)
        return True
    return False


def _kind(process: psutil.Process, owner: int) -> Kind:
    if process.pid == owner:
        return "owner"
    with contextlib.suppress(psutil.Error):  # it has just ended
        if _TEMPLATE in process.cmdline():
            parent = process.parent()
            is_forked = parent is not None and _TEMPLATE in parent.cmdline()
            return "worker" if is_forked else "template"
    return "child"
