"""Defects of the bank and their twins on real streams, beside the verdict of `sim`."""

from collections.abc import Iterator, Sequence

import torch

from studies.comparison.cases import Case, case_of
from studies.documents import table
from studies.gpu.part import Part, Result
from studies.gpu.real_streams.playing import verdicts_on_streams
from studies.gpu.shared_device import said_on_sim
from syncverify.bugbank.catalogue import entries

ENTRIES = 20
_SECTIONS = ("ordering", "memory")


def run(device: torch.device, num_entries: int = ENTRIES) -> Result:
    """Play entries about order and memory; a twin with a violation is a failure."""
    rows: list[Sequence[str]] = []
    wrong: list[str] = []
    num_caught = 0
    for case in _cases(num_entries):
        scenario = case.reproducer.scenario
        rows.append(
            (
                f"`{case.id}`",
                _cell(said_on_sim(scenario, case.defect)),
                defect := _on_streams(case, device),
                twin := _on_streams(case, device, is_twin=True),
            )
        )
        num_caught += "(" in defect
        if alarms := said_on_sim(scenario, case.twin):
            wrong.append(f"`{case.id}`, twin on `sim`: {'; '.join(alarms)}")
        if "(" in twin:
            wrong.append(f"`{case.id}`, twin on real streams: {twin}")
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


def _cases(num_entries: int) -> Iterator[Case]:
    cases = (case_of(each) for each in entries() if each.family in _SECTIONS)
    known = [case for case in cases if case is not None]
    yield from known[:num_entries]


def _on_streams(case: Case, device: torch.device, *, is_twin: bool = False) -> str:
    """Name the first violation and the slow streams that brought it."""
    if device.type != "cuda":
        return "not run"
    subject = case.twin if is_twin else case.defect
    for slow, found in verdicts_on_streams(case.reproducer.scenario, subject, device):
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
