"""The fields of a written report that `replay` and `explain` take, and the last line of a replay.

No torch is imported here: see Note [Late imports] in `options.py`.
"""

import json
from collections.abc import Container
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from syncverify.errors import ScenarioFormatError, UsageError
from syncverify.plain_text import counted
from syncverify.scenario.replay_token import (
    ProgramPlay,
    Reproducer,
    file_text,
    load_program,
)
from syncverify.scenario.settings import BACKEND_NAMES, ReplayOptions

_PLACE: Final = "expected REPORT.json#RATING/N, such as report.json#wrong/1"


def words_of_program(play: ProgramPlay, options: ReplayOptions) -> list[str]:
    """Return the words that play a program; raise UsageError for an option of scenarios alone."""
    unplayed = {
        "--backend": options.backend not in {"", "sim"},
        "--contract": options.contract is not None,
        "--trace": options.trace_path is not None,
        "--flight-recorder": options.dumps_path is not None,
    }
    if wrong := [name for name, is_given in unplayed.items() if is_given]:
        raise UsageError(
            f"{wrong[0]} is for tokens of scenarios, and this one plays a program: leave it out"
        )
    files = {
        "--json": options.json_path,
        "--html": options.html_path,
        "--sarif": options.sarif_path,
        "--format": options.shown_as,
    }
    given = [
        word for name, value in files.items() if value for word in (name, str(value))
    ]
    return [*given, *play.words(options.subject)]


def with_recorded(options: ReplayOptions) -> ReplayOptions:
    """Return the options of a replay; a report fills in those that the user left out."""
    name = options.token_or_file
    report = _report(name)
    backend = options.backend or report.get("backend") or "sim"
    if options.subject:  # which may be another one, and gets no contract of a report
        return replace(options, backend=backend)
    named = report.get("subject")
    if not named:
        if file_text(name) is None:
            load_program(name)  # has an error of its own for a missing file
        raise UsageError(
            f"expected a subject: {name[:40]!r} names none, as a report of "
            "`syncverify run --json` does; hint: syncverify replay TOKEN SUBJECT"
        )
    contract = options.contract or report.get("contract_choice") or None
    return replace(options, subject=named, backend=backend, contract=contract)


def _report(name: str) -> dict[str, Any]:
    """Return a report, {} for another text; raise ScenarioFormatError for a wrong field."""
    try:
        report = json.loads(file_text(name) or "{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(report, dict):
        return {}
    for field in ("subject", "backend", "contract_choice"):
        value = report.get(field) or ""
        names = ("", *BACKEND_NAMES) if field == "backend" else (value,)
        if not isinstance(value, str) or value not in names:
            raise ScenarioFormatError(
                f"{name!r} is no report of `syncverify run --json`: its {field} is "
                f"{value!r:.40}"
            )
    return report


def reproduced_line(
    expected: ProgramPlay | Reproducer,
    found: Container[tuple[str, str]],
    subject: str,
    *,
    is_right: bool,
) -> str:
    """Return whether a subject shows a recorded violation again, by the identities of those found."""
    named = f"{expected.property} ({expected.cause})"
    if (expected.property, expected.cause) in found:
        return f"REPRODUCED: {subject} violates {named}"
    if is_right:
        return f"NOT REPRODUCED: {subject} holds {named}"
    return f"NOT REPRODUCED: {subject} violates something else than {named}"


def diagnosis_at(place: str) -> str:
    """Return the diagnosis to which `report.json#wrong/3` points; raise UsageError for no place."""
    file, _, rest = place.rpartition("#")
    rating, _, number = rest.partition("/")
    if not file or not (number.isascii() and number.isdigit()):
        raise UsageError(f"{_PLACE}, got {place!r}")
    listed = [each for each in _observed(Path(file)) if each.get("word") == rating]
    if not 1 <= int(number) <= len(listed):
        raise UsageError(
            f"{_PLACE}, but {file!r} lists {counted(len(listed), 'feature')} as {rating!r}"
        )
    chosen = listed[int(number) - 1]
    text = chosen.get("diagnosis")
    if not isinstance(text, str):
        raise UsageError(
            f"{chosen.get('feature')} is {rating!r}: there is nothing to explain"
        )
    return f"{chosen.get('feature')}, beyond the contract\n\n{text}"


def _observed(file: Path) -> list[dict[str, Any]]:
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"report {str(file)!r} cannot be read: {error}") from error
    observed = report.get("beyond") if isinstance(report, dict) else None
    if not isinstance(observed, list) or not all(isinstance(e, dict) for e in observed):
        raise UsageError(f"{str(file)!r} is no report of `syncverify run --json`")
    return observed
