"""The processes of one command: found by a mark in their environment, and signalled."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MARK = "SYNCVERIFY_KILLS"

Kind = Literal["owner", "child", "template", "worker"]


@dataclass(frozen=True, slots=True)
class Victim:
    """One process of a command, by its id and its part."""

    pid: int
    kind: Kind


def living(mark: str, owner: int) -> list[Victim]:
    """List the processes with a mark in their environment, zombies left out."""
    folders = Path("/proc").glob("[0-9]*")
    marked = [int(each.name) for each in folders if _has_mark(each, mark)]
    return [Victim(pid, _kind(pid, owner)) for pid in sorted(marked)]


def send(victim: Victim, number: signal.Signals) -> bool:
    """Send a signal; return False if the process has ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim.pid, number)
        return True
    return False


def _has_mark(process: Path, mark: str) -> bool:
    with contextlib.suppress(OSError):  # it has just ended, or is another user's
        return f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(
            b"\0"
        )
    return False


def _kind(pid: int, owner: int) -> Kind:
    if pid == owner:
        return "owner"
    with contextlib.suppress(OSError):
        process = Path(f"/proc/{pid}")
        if b"syncverify.processes.template" in (process / "cmdline").read_bytes():
            parent = process.joinpath("stat").read_text().rpartition(")")[2].split()[1]
            is_forked = (
                b"syncverify.processes.template"
                in Path(f"/proc/{parent}/cmdline").read_bytes()
            )
            return "worker" if is_forked else "template"
    return "child"
