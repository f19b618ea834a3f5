"""The subject, the backend and the contract of a report, to play its violations again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from syncverify.errors import ScenarioFormatError, UsageError
from syncverify.scenario.program_token import ProgramPlay
from syncverify.scenario.replay_token import decode_program, file_text
from syncverify.scenario.settings import BACKEND_NAMES

# Names of what was played, in the reports of `run`, of `simulate` and `record`, of `parity`.
_SUBJECTS: Final = ("subject", "program", "path")


def words_of_program(play: ProgramPlay, options: Mapping[str, Any]) -> list[str]:
    """Return the words that play a program again.

    Args:
        play: How it was played.
        options: The options of `replay`; None where left out.

    Raises:
        UsageError: An option is for scenarios alone.
    """
    given = {
        "--backend": options["backend"] not in {None, "sim"},
        "--contract": options["contract"] is not None,
        "--trace": options["trace_path"] is not None,
        "--flight-recorder": options["dumps_path"] is not None,
        "--format": options["shown_as"] != "text",
    }
    if wrong := [name for name, is_given in given.items() if is_given]:
        raise UsageError(
            f"{wrong[0]} is for tokens of scenarios, and this one plays a program: leave it out"
        )
    page = options["html_path"]
    return [
        *([] if page is None else ["--html", str(page)]),
        *play.words(options["subject"]),
    ]


def with_recorded(token_or_file: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a replay; a report fills in those that the user left out.

    The contract of a report is that of its subject, and no other subject gets it.

    Args:
        token_or_file: A token, the path of its file, or `report.json#N`.
        options: The options `subject`, `contract` and `backend`; None where left out.

    Returns:
        The options, with a subject and a backend.

    Raises:
        UsageError: No subject is named, there is neither a token nor a file, or the file is no
            report.
    """
    report = _checked(_report(token_or_file), token_or_file)
    recorded = {"backend": report.get("backend") or "sim"}
    if options["subject"] is None:
        named = [report[each] for each in _SUBJECTS if report.get(each)]
        if not named:
            if file_text(token_or_file) is None:
                decode_program(
                    token_or_file
                )  # has an error of its own for a missing file
            raise UsageError(
                f"expected a subject: {token_or_file[:40]!r} names none, as a report of "
                "`syncverify run --json` does; hint: syncverify replay TOKEN SUBJECT"
            )
        recorded["subject"] = named[0]
        recorded["contract"] = report.get("contract_choice") or None
    return {**options, **{k: v for k, v in recorded.items() if options[k] is None}}


def _checked(report: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a report; its file may come from anybody.

    Raises:
        ScenarioFormatError: A field that a replay takes over has a value of another kind.
    """
    for field in (*_SUBJECTS, "backend", "contract_choice"):
        value = report.get(field) or ""
        names = ("", *BACKEND_NAMES) if field == "backend" else (value,)
        if not isinstance(value, str) or value not in names:
            raise ScenarioFormatError(
                f"{name!r} is no report of `syncverify run --json`: its {field} is "
                f"{value!r:.40}"
            )
    return report


def _report(token_or_file: str) -> dict[str, Any]:
    """Return a report; {} for a token, and for a file that holds anything else."""
    try:
        found = json.loads(file_text(token_or_file) or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
