"""The documents of a run: whole files, in formats that other programs read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from syncverify.report.console import check_folders, json_text, write
from syncverify.report.report import Report
from syncverify.report.sarif import sarif_log

# One for each of `REPORT_DOCUMENTS`.
_WRITERS: Final[dict[str, Callable[[Report], str]]] = {
    "sarif": lambda report: json_text(sarif_log(report)),
}


def document_paths(options: Mapping[str, Any]) -> dict[str, Path]:
    """Return the file of each document that the options of a command name."""
    named = {name: options[f"{name}_path"] for name in _WRITERS}
    return {name: path for name, path in named.items() if path is not None}


def check_documents(paths: Mapping[str, Path]) -> None:
    """Refuse a document in a missing folder, before a search is run for it."""
    check_folders(*paths.values())


def write_documents(paths: Mapping[str, Path], report: Report) -> None:
    """Write the documents of a report; raise UsageError where one cannot be written."""
    for name, path in paths.items():
        write(path, _WRITERS[name](report))
