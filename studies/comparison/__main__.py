"""The command: give all methods the defects of the bug bank, and write their verdicts.

Exit codes: 0 all defects were played, 1 a defect has no scenario that shows it, 2 bad usage,
130 interrupted.
"""

from pathlib import Path

import click
import torch

from studies.comparison.cases import case_of
from studies.comparison.document import PAGE, page_of
from studies.comparison.methods.all_methods import METHODS
from studies.comparison.outcomes import (
    Outcome,
    Task,
    compared,
    is_whole,
    not_played,
    store,
    stored,
)
from studies.crews import with_crew
from studies.documents import write_part
from syncverify.bugbank.catalogue import entries
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import Crew

NOT_FOUND = 1


@click.command()
@click.option("--only", multiple=True, help="An id, or the start of ids; repeatable.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path),
              default=None,
              help="Write outcomes here; an existing file is continued.")  # fmt: skip
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path),
              default=None, help="Write the figures between the marks of this page.")  # fmt: skip
@with_crew
def main(
    only: tuple[str, ...], crew: Crew, json_path: Path | None, markdown: Path | None
) -> int:
    """Compare the methods in use today with syncverify, on the bug bank."""
    torch.set_num_threads(1)
    chosen = [entry for entry in entries() if entry.name.startswith(only or ("",))]
    if not chosen:
        raise click.UsageError(
            f"no defect has an id that starts with {' or '.join(only)}; see docs/bug-bank.md"
        )
    outcomes = stored(json_path)
    left = [entry for entry in chosen if not is_whole(outcomes.get(entry.name))]
    tasks = [
        Task(case, outcomes.get(entry.name))
        for entry in left
        if (case := case_of(entry)) is not None
    ]
    for _, outcome in crew(compared, tasks):
        outcomes[outcome.id] = outcome
        click.echo(_line(outcome))
        if json_path is not None:
            store(json_path, _in_order(outcomes))
    missing = [entry for entry in left if not is_whole(outcomes.get(entry.name))]
    for entry in missing:
        click.echo(f"{entry.name}: no token; write one by `syncverify bank --json`")
        outcomes[entry.name] = not_played(entry)
    if markdown is not None:
        text = page_of(_in_order(outcomes), len(entries()))
        write_part(markdown, PAGE.part, text)
    return NOT_FOUND if missing else 0


def _in_order(outcomes: dict[str, Outcome]) -> list[Outcome]:
    return [outcomes[entry.name] for entry in entries() if entry.name in outcomes]


def _line(outcome: Outcome) -> str:
    caught = [m.id for m in METHODS if outcome.defect[m.id].alarmed]
    alarms = [m.id for m in METHODS if outcome.twin[m.id].alarmed]
    verdict = f"{outcome.id}: caught by {', '.join(caught) or 'none'}"
    return f"{verdict}; FALSE ALARM of {', '.join(alarms)}" if alarms else verdict


if __name__ == "__main__":
    run_command(main, "python -m studies.comparison")
