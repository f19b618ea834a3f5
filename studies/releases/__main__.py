"""Compare what our pages say of releases with the package index.

    python -m studies.releases             # compare with the index of today
    python -m studies.releases --update    # store what the index says, fill it in, and compare

Exit codes: 0 each sentence is true, 1 one is not, 2 bad usage, or the index does not answer.
"""

import sys
from pathlib import Path

import click

from studies.releases.facts import ROOT, facts
from studies.releases.marks import filled, problems
from studies.releases.package_index import asked
from studies.releases.release_table import ReleaseTable
from syncverify.command.process_exit import run_command

PAGES = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "adopting", "comparison", "conformance", "findings", "index", "timemachine",
        )
    ),
]  # fmt: skip


@click.command()
@click.option("--update", is_flag=True, help="Store what the index says.")
def main(*, update: bool) -> None:
    """Compare what our pages say of releases with the package index."""
    stored = ReleaseTable.read()
    today = _today(stored)
    if update:
        today.write()
        for page in PAGES:
            page.write_text(filled(page.read_text("utf-8"), facts(today)), "utf-8")
    wrong = list(complaints(PAGES, _known(today, stored, update=update)))
    for line in wrong:
        click.echo(line)
    names = ", ".join(f"{name} {r.version}" for name, r in today.newest.items())
    click.echo(f"{len(PAGES)} pages, newest on {today.date}: {names}")
    sys.exit(bool(wrong))


def complaints(pages: list[Path], known: dict[str, str]) -> list[str]:
    """Return a line for each sentence that is not true."""
    return [
        f"{page.relative_to(ROOT)}:{problem.line}: says {problem.says}; {problem.so}"
        for page in pages
        for problem in problems(page.read_text(encoding="utf-8"), known)
    ]


def _today(stored: ReleaseTable) -> ReleaseTable:
    try:
        return asked(list(stored.newest))
    except OSError as error:
        raise click.UsageError(f"the package index does not answer: {error}") from None


def _known(
    today: ReleaseTable, stored: ReleaseTable, *, update: bool
) -> dict[str, str]:
    """Return the facts to compare with; a day on which nothing changed is no untruth."""
    date = today.date if update else stored.date
    return facts(ReleaseTable(date, today.newest))


if __name__ == "__main__":
    run_command(main, "python -m studies.releases")
