"""Soak: a long search for false alarms, with correct subjects and seed after seed.

    python -m studies.pages.soak soak.jsonl --cluster local:2 synchronizer=6000 ddp=6000
    python -m studies.pages.soak soak.jsonl --backend gloo synchronizer=10000

Each line of the file is one finished campaign, so a soak continues the file, and a campaign that
was cut off goes on; start a new file after a change of the harness. The exit code is 1 if any
line has a violation.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import click
import torch

from syncverify.backends.choice import open_backend
from syncverify.command.process_exit import run_command
from syncverify.plain_text import counted
from syncverify.report.report import Report
from syncverify.search.campaign_file import forget
from syncverify.settings import BACKEND_NAMES, Settings
from syncverify.subjects.subject import resolve
from syncverify.verification.reported_search import run_search

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


def campaigns(
    wanted: dict[str, int], found: list[dict[str, Any]], backend: str
) -> Iterator[Campaign]:
    """Yield the campaign of each subject that has played too little.

    Args:
        wanted: Scenarios by subject.
        found: Lines of earlier soaks.
        backend: Backend of the campaigns.
    """
    for subject, examples in wanted.items():
        own = [line for line in found if _played_by(line) == (subject, backend)]
        left = examples - sum(line["examples"] for line in own)
        if left > 0:
            seed = 1 + max((line["seed"] for line in own), default=-1)
            yield Campaign(subject, backend, seed, left)


def sums(found: list[dict[str, Any]]) -> Iterator[tuple[str, str, int, int]]:
    """Yield subject, backend, scenarios and alarms of each subject on each backend."""
    for subject, backend in dict.fromkeys(map(_played_by, found)):
        own = [line for line in found if _played_by(line) == (subject, backend)]
        played = sum(line["examples"] for line in own)
        yield subject, backend, played, sum(len(line["violations"]) for line in own)


def _played_by(line: dict[str, Any]) -> tuple[str, str]:
    return line["subject"], line.get("backend", "sim")


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


def as_line(report: Report) -> dict[str, Any]:
    """Return the figures of a search and the tokens that replay its violations."""
    return {
        "subject": report.subject,
        "backend": report.backend,
        "seed": report.seed,
        "examples": report.examples,
        "seconds": round(report.seconds, 1),
        "violations": [
            {
                "property": each.violation.property,
                "cause": each.violation.cause,
                "summary": each.violation.summary,
                "token": each.token,
            }
            for each in report.violations
        ],
    }


def lines(path: Path) -> list[dict[str, Any]]:
    """Read the finished searches; a missing file has none."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("wanted", type=wanted_scenarios, nargs=-1, required=True)
@click.option("--cluster", default="local", help="As that of `syncverify run`.")
@click.option("--backend", type=click.Choice(BACKEND_NAMES), default="sim")
def main(
    path: Path, wanted: tuple[tuple[str, int], ...], cluster: str, backend: str
) -> None:
    """Search until each subject has played as many scenarios as WANTED, and sum up."""
    for campaign in campaigns(dict(wanted), lines(path), backend):
        report = play(campaign, cluster)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(as_line(report)) + "\n")
        if report.campaign is not None:
            forget(report.campaign)
    found = lines(path)
    for name, kind, played, alarms in sums(found):
        click.echo(
            f"{name} on {kind}: {counted(played, 'scenario')}, {counted(alarms, 'alarm')}"
        )
    sys.exit(any(line["violations"] for line in found))


if __name__ == "__main__":
    run_command(main, "python -m studies.pages.soak")
