"""Long search for false alarms: subjects that are right, seed after seed.

    python tests/quality/soak.py soak.jsonl synchronizer=6000 ddp=6000

Each line of the file is one finished search, so a soak that was cut off goes on where it
was. Exits with 1 if any line of the file has a violation.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from syncverify.backends.sim import SimBackend
from syncverify.report.report import Report
from syncverify.subject import Subject, resolve
from syncverify.verification import run_search

EXAMPLES_PER_SEED = 250
RANKS = 4


def soak(path: Path, wanted: dict[str, int]) -> list[dict[str, Any]]:
    """Search until every subject has as many scenarios as wanted.

    Args:
        path: JSON lines, of earlier soaks too; lines are appended.
        wanted: Scenarios by subject.

    Returns:
        All lines of the file.
    """
    for name, examples in wanted.items():
        played = Counter(line["subject"] for line in lines(path))[name]
        with closing(SimBackend()) as backend:
            for seed in range(played, -(-examples // EXAMPLES_PER_SEED)):
                line = as_line(search(resolve(name), backend, seed))
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
    return lines(path)


def search(subject: Subject, backend: SimBackend, seed: int) -> Report:
    """Play one seed's scenarios, with the schedules that a plain run plays."""
    return run_search(
        subject, backend, ranks=RANKS, examples=EXAMPLES_PER_SEED, seed=seed
    )


def as_line(report: Report) -> dict[str, Any]:
    """Keep what counts, and what replays."""
    return {
        "subject": report.subject,
        "seed": report.seed,
        "examples": report.examples,
        "seconds": round(report.seconds, 1),
        "violations": [
            {
                "property": each.violation.property,
                "cause": each.violation.cause,
                "summary": each.violation.summary,
                "token": each.token,
            }
            for each in report.violations
        ],
    }


def lines(path: Path) -> list[dict[str, Any]]:
    """Read what was found so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def main(path: str, *wanted: str) -> int:
    """Soak, and say how it went."""
    torch.set_num_threads(1)
    counts = {
        name: int(number) for name, _, number in (w.rpartition("=") for w in wanted)
    }
    found = soak(Path(path), counts)
    for name in dict.fromkeys(line["subject"] for line in found):
        own = [line for line in found if line["subject"] == name]
        alarms = sum(len(line["violations"]) for line in own)
        played = sum(line["examples"] for line in own)
        sys.stdout.write(f"{name}: {played} scenarios, {alarms} alarm(s)\n")
    return any(line["violations"] for line in found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
