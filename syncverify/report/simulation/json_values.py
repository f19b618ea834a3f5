"""A simulation as plain JSON values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from syncverify.report.evidence import evidence_json
from syncverify.report.simulation.text import remark
from syncverify.simulation.simulation import FoundInProgram, Simulation


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
        "remarks": [*map(remark, simulation.remarks)],
        "violations": [*map(_violation_json, simulation.violations)],
    }


def _violation_json(found: FoundInProgram) -> dict[str, Any]:
    violation = found.violation
    return {
        "property": violation.property,
        "summary": violation.summary,
        "ranks": list(violation.ranks),
        "schedule": list(found.schedule.choices),
        "evidence": evidence_json(violation.cause, violation.evidence),
        "harm": None if found.harm is None else asdict(found.harm),
    }
