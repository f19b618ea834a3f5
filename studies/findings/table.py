"""Stored results of the scripts, and their table in docs/findings.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from studies.documents import RESULTS, Document, table
from studies.findings.playing import NOT_SHOWN, Environment, Played, scripts

STORED: Final = RESULTS / "findings.json"

# Results by release of torch; of each script, by its name.
Results = dict[str, dict[str, Any]]


def stored() -> Results:
    """Read the results."""
    if not STORED.exists():
        return {}
    results: Results = json.loads(STORED.read_text(encoding="utf-8"))
    return results


def with_result(
    results: Results, environment: Environment, script: Path, result: Played
) -> Results:
    """Return the results with one more."""
    entry = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": environment.version,
        "peer": environment.peer(script),
        **asdict(result),
    }
    known = results.get(environment.torch, {})
    return {**results, environment.torch: {**known, script.stem: entry}}


def store(results: Results) -> None:
    """Write the results."""
    text = json.dumps(results, indent=2, sort_keys=True) + "\n"
    STORED.write_text(text, encoding="utf-8")


def plays() -> str:
    """Return the table of the stored results."""
    results = stored()
    releases = sorted(results, key=lambda each: [*map(int, each.split("."))])
    rows = (
        (
            f"`{script.stem}`",
            *(_cell(results[each].get(script.stem)) for each in releases),
        )
        for script in scripts()
    )
    return "\n".join(table(("script", *(f"torch {each}" for each in releases)), rows))


def _cell(entry: Mapping[str, str] | None) -> str:
    if entry is None:
        return "not played"
    words = entry["verdict"]
    if entry["patched"] == NOT_SHOWN:
        words += "; with the patch: right"
    python = f"Python {entry['python'].rpartition('.')[0]}"
    where = ", ".join(
        each for each in (entry.get("peer", ""), python, entry["date"]) if each
    )
    return f"{words} ({where})"


PART: Final = Document("docs/findings.md", plays, "plays")
