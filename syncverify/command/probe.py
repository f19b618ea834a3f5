"""The execution of `syncverify probe`: find the contract that a subject keeps."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from syncverify.backends.choice import AnyBackend, open_backend
from syncverify.command.playing import leave, playing
from syncverify.command.process_exit import VIOLATION
from syncverify.command.progress import SearchProgress
from syncverify.defaults import CONFIRMING_EXAMPLES, PROBED_EXAMPLES, PROBED_SIMPLER
from syncverify.report.console import CommandConsole, check_folder, write
from syncverify.report.found_contract import compared, corrected, found_contract
from syncverify.report.observed_table import table_lines
from syncverify.report.report import Report
from syncverify.report.text import diagnosis, verdict, violation_text
from syncverify.scenario.contract_file import contract_text
from syncverify.scenario.features import optional_features
from syncverify.subjects.subject import Subject, resolve
from syncverify.verification import Observing, run_search


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """Values of the options, by the names that click gives; the help explains each."""

    subject: str
    contract: str | None
    backend: str
    ranks: int
    scenarios: int
    seed: int
    output: Path | None
    json_path: Path | None


def execute(options: ProbeOptions) -> None:
    """Observe all features of a subject, print the table, and write the contract."""
    console = CommandConsole(highlight=False)
    progress = SearchProgress(
        console,
        PROBED_EXAMPLES,
        options.subject,
        options.backend,
        options.contract or "",
    )
    with playing():
        _execute(options, progress)


def _execute(options: ProbeOptions, progress: SearchProgress) -> None:
    own = resolve(options.subject, options.contract)
    plain = replace(own, capabilities=own.capabilities.plain())
    check_folder(options.output)
    check_folder(options.json_path)
    with closing(open_backend(options.backend, plain)) as backend:
        report = _probe(options, plain, backend, progress)
        if not report.violations:
            report = _confirmed(options, plain, backend, report)
    _print(progress.console, table_lines(report.beyond))
    if options.json_path is not None:
        text = json.dumps(report.to_json(), indent=2, allow_nan=False)
        write(options.json_path, text)
    if report.violations:
        _print(progress.console, [diagnosis(report)])
        leave(VIOLATION, backend)
    found = found_contract(plain.capabilities, report.beyond)
    if options.output is not None:
        heads = found.comments(options.subject, options.seed)
        write(options.output, contract_text(found.capabilities, comments=heads))
        _print(progress.console, [f"contract written to {options.output}"])
    _print(progress.console, compared(own.capabilities, report.beyond))
    _print(progress.console, [verdict(report)])
    leave(0, backend)


def _print(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


def _confirmed(
    options: ProbeOptions, plain: Subject, backend: AnyBackend, report: Report
) -> Report:
    """Search under the found contract, and correct its features until it is kept.

    Few scenarios of a feature may all be right where others are not.

    Returns:
        The report with the corrected words, or with a violation of plain steps.
    """
    while True:
        found = found_contract(plain.capabilities, report.beyond).capabilities
        later = run_search(
            replace(plain, capabilities=found),
            backend,
            ranks=options.ranks,
            examples=CONFIRMING_EXAMPLES,
            seed=options.seed,
            stop_at_first=True,
        )
        if not later.violations:
            return report
        violation = later.violations[0]
        if not list(optional_features(violation.scenario)):
            return replace(report, violations=later.violations)
        text = violation_text(violation, subject=plain.name, backend=backend.name)
        observed = tuple(corrected(report.beyond, violation, text))
        report = replace(report, beyond=observed)


def _probe(
    options: ProbeOptions,
    subject: Subject,
    backend: AnyBackend,
    progress: SearchProgress,
) -> Report:
    """Play some plain training steps, then each feature."""
    progress.console.print(
        f"probing {options.subject} on {options.backend}: {PROBED_EXAMPLES} plain scenarios, "
        f"then {options.scenarios} of each feature, up to {options.ranks} rank(s), "
        f"seed {options.seed}",
        soft_wrap=True,
    )
    observing = Observing(options.scenarios, PROBED_SIMPLER, progress.observed)
    with progress:
        return run_search(
            subject,
            backend,
            ranks=options.ranks,
            examples=PROBED_EXAMPLES,
            seed=options.seed,
            progress=progress,
            observing=observing,
        )
