"""The page of a simulation: the page of a report, with the timeline of the run."""

from __future__ import annotations

from typing import Any

from syncverify.judge.properties.any_program import STATEMENTS
from syncverify.report.html.moment import timeline_values
from syncverify.report.html.render import rendered
from syncverify.report.simulation.text import (
    harm_lines,
    remark,
    replay_line,
    verdict,
    violation_text,
)
from syncverify.simulation.simulation import FoundInProgram, Simulation


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
            "remarks": [*map(remark, simulation.remarks)],
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
        "statement": STATEMENTS[violation.property],
        "summary": violation.summary,
        "diagnosis": violation_text(simulation, found),
        "replay": replay_line(simulation, found),
        "timeline": timeline_values(found.run, violation),
        "witness": [*harm_lines(found)],
    }
