"""Stored results of the scripts, and their table in docs/findings.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from studies.findings.playing import NOT_SHOWN, ROOT, Environment, Played, scripts

STORED: Final = ROOT / "studies" / "results" / "findings.json"
PAGE: Final = ROOT / "docs" / "findings.md"
_BLOCK: Final = re.compile(
    r"(?<=<!-- plays -->\n).*?(?=<!-- end of plays -->)", re.DOTALL
)

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


def page(results: Results) -> str:
    """Return docs/findings.md with the table of these results."""
    text = "\n".join(["", *_lines(results), "", ""])
    return _BLOCK.sub(lambda _: text, PAGE.read_text(encoding="utf-8"))


def _lines(results: Results) -> Iterator[str]:
    releases = sorted(results, key=lambda each: [*map(int, each.split("."))])
    yield f"| script | {' | '.join(f'torch {each}' for each in releases)} |"
    yield "|---" * (len(releases) + 1) + "|"
    for script in scripts():
        found = [results[release].get(script.stem) for release in releases]
        yield f"| `{script.stem}` | {' | '.join(map(_cell, found))} |"


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
