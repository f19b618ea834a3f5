"""Defects of the bank and their twins on real streams, beside the verdict of `sim`."""

from collections.abc import Sequence

import torch

from studies.bank_rows import reproducer_of
from studies.documents import table
from studies.gpu.part import Part, Result
from studies.gpu.real_streams.playing import verdicts_on_streams
from studies.gpu.shared_device import said_on_sim
from syncverify.scenario.scenario import Scenario
from syncverify.subjects.bugbank.catalogue import entries
from syncverify.subjects.bugbank.entry import Entry
from syncverify.subjects.subject import Subject

ENTRIES = 20
_SECTIONS = ("ordering", "memory")


def run(device: torch.device, num_entries: int = ENTRIES) -> Result:
    """Play entries about order and memory; a twin with a violation is a failure."""
    rows: list[Sequence[str]] = []
    wrong: list[str] = []
    num_caught = 0
    for entry, scenario in _cases(num_entries):
        fixed = entry.fixed()
        rows.append(
            (
                f"`{entry.name}`",
                _cell(said_on_sim(scenario, entry.defect())),
                defect := _on_streams(scenario, entry.defect(), device),
                twin := _on_streams(scenario, fixed, device),
            )
        )
        num_caught += "(" in defect
        if alarms := said_on_sim(scenario, fixed):
            wrong.append(f"`{entry.name}`, twin on `sim`: {'; '.join(alarms)}")
        if "(" in twin:
            wrong.append(f"`{entry.name}`, twin on real streams: {twin}")
    place = "on real streams" if device.type == "cuda" else "on `sim` alone"
    result = Result.of(
        wrong,
        device,
        f"{len(rows)} defects and twins {place}"
        + (f"; {num_caught} gave a wrong number" if device.type == "cuda" else ""),
    )
    header = ("defect", "on `sim`", "on real streams", "twin on real streams")
    lines = [*table(header, rows), "", *result.lines]
    return Result(result.state, result.device, result.summary, lines)


def _cases(num_entries: int) -> list[tuple[Entry, Scenario]]:
    return [
        (entry, found.scenario)
        for entry in entries()
        if entry.family in _SECTIONS
        if (found := reproducer_of(entry)) is not None
    ][:num_entries]


def _on_streams(scenario: Scenario, subject: Subject, device: torch.device) -> str:
    """Name the first violation and the slow streams that brought it."""
    if device.type != "cuda":
        return "not run"
    for slow, found in verdicts_on_streams(scenario, subject, device):
        if found:
            return f"{found[0]}, slow: {slow or 'none'}"
    return "-"


def _cell(found: Sequence[str]) -> str:
    return found[0] if found else "-"


PART = Part(
    "bank",
    "Defects of the bank",
    "Does a defect of order or memory give a wrong number on real streams, and its twin none? "
    "`sim` plays the default schedule of the same scenario. Defects that need a schedule, or "
    "that waste time or memory, have no wrong number to show. On a CPU, `sim` alone plays.",
    run,
)
