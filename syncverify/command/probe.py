"""The execution of `syncverify probe`: find the contract that a subject keeps."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from syncverify.command.playing import ended, playing
from syncverify.command.process_exit import VIOLATION
from syncverify.command.progress import SearchProgress
from syncverify.command.verification import reported_search
from syncverify.plain_text import counted
from syncverify.playing.choice import AnyBackend, open_backend
from syncverify.report.annotations import say_annotations
from syncverify.report.console import CommandConsole, check_files, write, write_json
from syncverify.report.observed import (
    comments_of_contract,
    compared,
    corrected,
    found_contract,
    table_lines,
)
from syncverify.report.report import Report
from syncverify.report.run import annotations_of_run, diagnosis, explanation_of
from syncverify.scenario.features import optional_features
from syncverify.scenario.schedule import ScheduleChoice
from syncverify.scenario.settings import (
    CONFIRMING_EXAMPLES,
    PROBED_EXAMPLES,
    PROBED_SIMPLER,
    ProbeOptions,
    Settings,
)
from syncverify.search.found_violation import FoundViolation
from syncverify.search.judge import Judge
from syncverify.search.observation import Observing
from syncverify.search.shrinking import with_needed_features
from syncverify.subjects.contract_choice import contract_text
from syncverify.subjects.subject import Subject, resolve


def execute(options: ProbeOptions) -> int:
    """Observe all features of a subject, print the table, and write the contract."""
    progress = SearchProgress(
        console=CommandConsole(),
        total=PROBED_EXAMPLES,
        json_path=options.json_path,
        names_features=True,
    )
    with playing(lambda: progress.in_words(None), backend=options.backend):
        own = resolve(options.subject, options.contract)
        plain = replace(own, capabilities=own.capabilities.plain())
        check_files(options, options.output)
        with closing(open_backend(options.backend, plain)) as backend:
            probe = _Probe(options, plain, backend, progress)
            report = probe.report()
        say_annotations(options.shown_as, annotations_of_run(_without_wrong(report)))
        lines = list[str]()
        if not report.violations:
            lines += compared(own.capabilities, report.beyond)
            if options.output is not None:
                heads = comments_of_contract(
                    report.beyond, options.subject, options.seed
                )
                found = found_contract(plain.capabilities, report.beyond)
                write(options.output, contract_text(found, comments=heads))
                lines.insert(0, f"contract written to {options.output}")
        probe.tell(report, lines)
        return ended(VIOLATION if report.violations else 0, backend)


def _without_wrong(report: Report) -> Report:
    """Return the report without failing: wrong features are the result of a probe."""
    return replace(report, fails_on_wrong=False)


@dataclass(frozen=True, slots=True)
class _Probe:
    """A probe on an open backend; the subject promises plain steps alone."""

    options: ProbeOptions
    subject: Subject
    backend: AnyBackend
    progress: SearchProgress

    def report(self) -> Report:
        """Play plain training steps and each feature, then the features of the found contract."""
        try:
            report = self._searched()
            return report if report.violations else self._confirmed(report)
        except reported_search.ObservationInterrupted as interrupt:
            self.tell(interrupt.report)
            raise

    def tell(self, report: Report, lines: Sequence[str] = ()) -> None:
        """Print the table, some lines and the verdict; write the report."""
        table = table_lines(report.beyond, is_violated=bool(report.violations))
        for line in (*table, *lines, diagnosis(_without_wrong(report))):
            self.progress.console.print(line)
        self.progress.end()
        write_json(self.options.json_path, report.to_json())

    def _searched(self) -> Report:
        options, progress = self.options, self.progress
        settings = Settings(
            ranks=options.ranks,
            examples=PROBED_EXAMPLES,
            seed=options.seed,
            progress=progress,
        )
        reported_search.check_search(self.subject, self.backend, settings)
        progress.console.print(
            f"probing {options.subject} on {options.backend}: {PROBED_EXAMPLES} plain "
            f"scenarios, then {options.scenarios} of each feature, up to "
            f"{counted(options.ranks, 'rank')}, seed {options.seed}",
        )
        observing = Observing(options.scenarios, PROBED_SIMPLER, progress.observed)
        progress.begin(self.subject, self.backend.name, options.seed)
        with progress:
            search = reported_search.run_search
            return search(self.subject, self.backend, settings, observing)

    def _confirmed(self, report: Report) -> Report:
        """Search under the found contract, and correct its features until it is kept."""
        tell = self.progress.console.print
        names = {"subject": self.subject.name, "backend": self.backend.name}
        tell("confirming: features that were right or refused, all together")
        try:
            while violation := self._violation_of_found(report):
                if not list(optional_features(violation.scenario)):  # of plain steps
                    return replace(report, violations=(violation,))
                text = explanation_of(violation, **names).text()
                observed = tuple(corrected(report.beyond, violation, text))
                for old, new in zip(report.beyond, observed, strict=True):
                    if new is not old:
                        words = f"{new.feature} is {new.rating}, not {old.rating}"
                        tell(f"corrected: {words}: {new.summary}")
                report = replace(report, beyond=observed)
        except KeyboardInterrupt:
            raise reported_search.ObservationInterrupted(report) from None
        return report

    def _violation_of_found(self, report: Report) -> FoundViolation | None:
        """Return the first violation of the found contract, with the features that it needs."""
        options = self.options
        found = found_contract(self.subject.capabilities, report.beyond)
        asked = replace(self.subject, capabilities=found)
        settings = Settings(
            ranks=options.ranks,
            examples=CONFIRMING_EXAMPLES,
            seed=options.seed,
            stop_at_first=True,
        )
        later = reported_search.run_search(asked, self.backend, settings)
        if not later.violations:
            return None
        judge = Judge(asked, self.backend, ScheduleChoice(), options.seed)
        return with_needed_features(judge, later.violations[0])
