"""Soak: a long search for false alarms, with correct subjects and seed after seed.

    python -m studies.pages.soak soak.jsonl --cluster local:2 synchronizer=6000 ddp=6000
    python -m studies.pages.soak soak.jsonl --backend gloo synchronizer=10000

Each line of the file is one finished campaign, so a soak continues the file, and a campaign that
was cut off goes on; start a new file after a change of the harness. The exit code is 1 if any
line has a violation.
"""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import click
import torch

from studies.rows import RowFile
from studies.searches import SearchRow
from syncverify.command.process_exit import run_command
from syncverify.command.verification.reported_search import run_search
from syncverify.plain_text import counted
from syncverify.playing.choice import open_backend
from syncverify.report.report import Report
from syncverify.scenario.settings import BACKEND_NAMES, Settings
from syncverify.search.campaign_file import forget
from syncverify.subjects.subject import resolve

RANKS = 4


def wanted_scenarios(argument: str) -> tuple[str, int]:
    """Return the subject and the number of scenarios of an argument.

    Raises:
        BadParameter: The argument has another form.
    """
    subject, _, number = argument.rpartition("=")
    if not subject or not number.isdecimal():
        raise click.BadParameter(f"expected subject=number, got {argument!r}")
    return subject, int(number)


class Campaign(NamedTuple):
    """A search of one subject with one seed."""

    subject: str
    backend: str
    seed: int
    examples: int


def soaked(path: Path) -> RowFile[SearchRow]:
    """Return the finished campaigns of a file."""
    return RowFile(path, SearchRow, ("subject", "backend", "seed"))


def campaigns(
    wanted: dict[str, int], found: list[SearchRow], backend: str
) -> Iterator[Campaign]:
    """Yield the campaign of each subject that has played too little.

    Args:
        wanted: Scenarios by subject.
        found: Campaigns of earlier soaks.
        backend: Backend of the campaigns.
    """
    for subject, examples in wanted.items():
        own = [row for row in found if (row.subject, row.backend) == (subject, backend)]
        left = examples - sum(row.examples for row in own)
        if left > 0:
            seed = 1 + max((row.seed for row in own), default=-1)
            yield Campaign(subject, backend, seed, left)


def sums(found: list[SearchRow]) -> Iterator[tuple[str, str, int, int]]:
    """Yield subject, backend, scenarios and alarms of each subject on each backend."""
    for subject, backend in dict.fromkeys((row.subject, row.backend) for row in found):
        own = [row for row in found if (row.subject, row.backend) == (subject, backend)]
        played = sum(row.examples for row in own)
        yield subject, backend, played, sum(len(row.violations) for row in own)


def play(campaign: Campaign, cluster: str) -> Report:
    """Play a campaign, with the schedules that a plain run plays."""
    torch.set_num_threads(1)
    subject = resolve(campaign.subject)
    settings = Settings(
        backend=campaign.backend,
        ranks=RANKS,
        examples=campaign.examples,
        seed=campaign.seed,
        cluster=cluster,
    )
    with closing(open_backend(campaign.backend, subject)) as backend:
        return run_search(subject, backend, settings)


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("wanted", type=wanted_scenarios, nargs=-1, required=True)
@click.option("--cluster", default="local", help="As that of `syncverify run`.")
@click.option("--backend", type=click.Choice(BACKEND_NAMES), default="sim")
def main(
    path: Path, wanted: tuple[tuple[str, int], ...], cluster: str, backend: str
) -> None:
    """Search until each subject has played as many scenarios as WANTED, and sum up."""
    file = soaked(path)
    for campaign in campaigns(dict(wanted), file.read(), backend):
        report = play(campaign, cluster)
        file.put(SearchRow.of(report, "syncverify"))
        if report.campaign is not None:
            forget(report.campaign)
    found = file.read()
    for name, kind, played, alarms in sums(found):
        click.echo(
            f"{name} on {kind}: {counted(played, 'scenario')}, {counted(alarms, 'alarm')}"
        )
    sys.exit(any(row.violations for row in found))


if __name__ == "__main__":
    run_command(main, "python -m studies.pages.soak")
