"""A simulation as text, JSON and page: each violation, and the schedules that were played."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from syncverify.faces.simulation.simulation import FoundInProgram, Simulation
from syncverify.judge.cause import is_exception
from syncverify.judge.causes import ADVICE
from syncverify.judge.properties.registry import STATEMENTS_IN_ANY_PROGRAM
from syncverify.judge.remarks import Remark
from syncverify.judge.traced import launches_of
from syncverify.plain_text import counted
from syncverify.replay_line import replay_line
from syncverify.report.console import json_numbers
from syncverify.report.evidence import evidence_json, numbers_text, titled_events
from syncverify.report.hints import hint_of
from syncverify.report.html.moment import timeline_values
from syncverify.report.html.render import rendered
from syncverify.report.text import (
    events_with_code,
    heading,
    numbered,
    seen_on,
    titled,
)
from syncverify.scenario.replay_token import encode
from syncverify.scenario.schedule import COMPLETE, FIRST, RANDOM, SAME
from syncverify.trace.source_lines import CodeLine

_TIMINGS: Final = {
    SAME: "timing cannot matter",
    FIRST: "the default timing; other timings may differ, see --schedules all",
    COMPLETE: "every timing that can matter",
    RANDOM: "random timings",
}
# torch's error, which says nothing of the way out.
_NO_BACKEND: Final = "No backend type associated with device type cpu"


def simulation_text(simulation: Simulation) -> str:
    """Return the report of a simulation."""
    blocks = [
        violation_text(simulation, found, title)
        for title, found in numbered("VIOLATION", simulation.violations)
    ]
    blocks += remark_blocks(simulation.remarks)
    return "\n\n".join([*blocks, verdict(simulation)])


def remark_blocks(remarks: Sequence[Remark]) -> list[str]:
    """Return the block of a report that lists remarks, if there are any."""
    return ["\n".join(f"REMARK: {each}" for each in remarks)] if remarks else []


def violation_text(
    simulation: Simulation, found: FoundInProgram, title: str = "VIOLATION"
) -> str:
    """Return the lines of one violation; of a program with a name, the last one replays its run."""
    violation, shown = found.violation, set[CodeLine]()
    lines = heading(title, violation, STATEMENTS_IN_ANY_PROGRAM[violation.property])
    for word, events in titled_events(violation.evidence):
        lines += events_with_code(events, shown, word, indent="")
    lines += titled("harm:", harm_lines(found))
    lines.append(f"  seen on:    {seen_on(violation.ranks)}")
    if words := _hint(found):
        lines.append(f"  hint:       {words}")
    if simulation.is_found_by_name:
        lines.append(f"  replay:     {line_of(simulation, found)}")
    return "\n".join(lines)


def line_of(simulation: Simulation, found: FoundInProgram) -> str:
    """Return the command that plays the run of a violation again."""
    if "::" in simulation.program:  # a test
        return f"pytest {simulation.program}"
    return replay_line(encode(simulation.play_of(found)), simulation.program)


def harm_lines(found: FoundInProgram) -> Iterator[str]:
    """Yield the lines about another value that the program returns."""
    if harm := found.harm:
        where = f" from element {harm.start} on" if harm.start else ""
        yield (
            f"rank {harm.rank} returns {numbers_text(harm.as_queued)}{where} in one legal order,"
        )
        yield f"and {numbers_text(harm.other)} in another one"


def _hint(found: FoundInProgram) -> str:
    """Return the repair to try first; "" where a remedy or the program's own error says more."""
    violation = found.violation
    if _NO_BACKEND in violation.summary:
        return ADVICE["no_backend"]
    if violation.cause == "deadlock" and _all_send(found):
        return ADVICE["all_send"]
    says_more = violation.evidence.unordered is not None or is_exception(
        violation.cause
    )
    if says_more or violation.cause == "process_died":
        return ""
    return hint_of(violation.cause)


def _all_send(found: FoundInProgram) -> bool:
    """Tell whether the ranks that stand still, and are several, all send a message."""
    traces = (found.run.ranks[rank].trace for rank in found.violation.ranks)
    last = [[*launches_of(trace)][-1:] for trace in traces]
    return len(last) > 1 and all(own and own[0].operation == "send" for own in last)


def verdict(simulation: Simulation) -> str:
    """Return the last line of a report: violations, ranks, and the schedules that were played."""
    scope = f"{counted(simulation.num_ranks, 'rank')}, simulated {simulation.device}"
    if simulation.refused:
        return f"NOT SIMULATED: {simulation.program} ({scope}): {simulation.refused}"
    assert simulation.coverage is not None
    extent = simulation.coverage.extent
    is_swapped = any(each.is_swap for each in simulation.remarks)
    # In that order of the ranks the values are what they are, but they may not be meant.
    see_remark = is_swapped and extent == SAME
    timings = "see the remark" if see_remark else _TIMINGS.get(extent, extent)
    played = f"{counted(simulation.num_runs, 'run')}: {timings}"
    count = len(simulation.violations)
    title = counted(count, "VIOLATION").upper() if count else "NO VIOLATION"
    return f"{title}: {simulation.program} ({scope}, {played})"


def simulation_json(simulation: Simulation) -> dict[str, Any]:
    """Return a report as plain JSON values."""
    return {
        "program": simulation.program,
        "ranks": simulation.num_ranks,
        "device": simulation.device,
        "seed": simulation.seed,
        "runs": simulation.num_runs,
        "schedules": simulation.coverage.extent if simulation.coverage else "",
        "refused": simulation.refused,
        "remarks": [*map(str, simulation.remarks)],
        "violations": [_violation_json(simulation, e) for e in simulation.violations],
    }


def _violation_json(simulation: Simulation, found: FoundInProgram) -> dict[str, Any]:
    violation = found.violation
    return {
        "property": violation.property,
        "summary": violation.summary,
        "ranks": list(violation.ranks),
        "schedule": list(found.schedule.choices),
        "token": encode(simulation.play_of(found)),
        "evidence": json_numbers(evidence_json(violation.cause, violation.evidence)),
        "harm": None if found.harm is None else json_numbers(asdict(found.harm)),
    }


def simulation_page(simulation: Simulation) -> str:
    """Return the page as one self-contained document."""
    return rendered(
        {
            "subject": simulation.program,
            "verdict": verdict(simulation),
            "failed": bool(simulation.violations),
            "judged": not simulation.refused,
            "facts": [
                ["ranks", str(simulation.num_ranks)],
                ["device", simulation.device],
                ["runs", f"{simulation.num_runs:,}"],
                ["violations", str(len(simulation.violations))],
            ],
            "remarks": [*map(str, simulation.remarks)],
            "timeline": timeline_values(simulation.run, None)
            if simulation.run and not simulation.violations
            else None,
            "violations": [
                violation_values(simulation, each) for each in simulation.violations
            ],
        }
    )


def violation_values(simulation: Simulation, found: FoundInProgram) -> dict[str, Any]:
    """Return the values of the section of one violation."""
    violation = found.violation
    return {
        "property": violation.property,
        "cause": violation.cause,
        "statement": STATEMENTS_IN_ANY_PROGRAM[violation.property],
        "summary": violation.summary,
        "diagnosis": violation_text(simulation, found),
        "replay": line_of(simulation, found),
        "timeline": timeline_values(found.run, violation),
        "witness": [*harm_lines(found)],
    }
