"""The execution of `syncverify probe`: find the contract that a subject keeps."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from syncverify.backends.choice import AnyBackend, open_backend
from syncverify.command.playing import leave, playing
from syncverify.command.process_exit import VIOLATION
from syncverify.command.progress import SearchProgress
from syncverify.defaults import PROBED_EXAMPLES, PROBED_SIMPLER
from syncverify.errors import UsageError
from syncverify.report.console import CommandConsole, check_folder, write
from syncverify.report.found_contract import compared, found_contract
from syncverify.report.observed_table import table_lines
from syncverify.report.report import Report
from syncverify.report.text import diagnosis, verdict
from syncverify.scenario.contract_file import contract_text
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
    if options.backend == "nccl":
        raise UsageError("expected backend sim, gloo or fake: a probe needs no GPU")
    with closing(open_backend(options.backend, plain)) as backend:
        report = _probe(options, plain, backend, progress)
    for line in table_lines(report.beyond):
        progress.console.print(line, markup=False, soft_wrap=True)
    if options.json_path is not None:
        write(
            options.json_path, json.dumps(report.to_json(), indent=2, allow_nan=False)
        )
    if report.violations:
        progress.console.print(diagnosis(report), markup=False, soft_wrap=True)
        leave(VIOLATION, backend)
    found = found_contract(plain.capabilities, report.beyond)
    if options.output is not None:
        heads = found.comments(options.subject, options.seed)
        write(options.output, contract_text(found.capabilities, comments=heads))
        progress.console.print(f"contract written to {options.output}", soft_wrap=True)
    for line in compared(own.capabilities, report.beyond):
        progress.console.print(line, markup=False, soft_wrap=True)
    progress.console.print(verdict(report), markup=False, soft_wrap=True)
    leave(0, backend)


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
