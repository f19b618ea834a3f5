"""Play the entries of the bug bank that have no figures, and drop figures without an entry.

    python -m studies.pages.bank_figures
    python -m studies.pages.bank_figures --twin-examples 1000 --jobs 2   # twins that have fewer, too

It goes on where it was cut off.
"""

from dataclasses import replace

import click

from studies.bank_rows import BANK, BUDGET, BankRow
from syncverify.command.bank.play import play_all
from syncverify.command.process_exit import run_command
from syncverify.subjects.bugbank.catalogue import entries


@click.command()
@click.option("--twin-examples", type=click.IntRange(min=0), default=BUDGET.twin_examples,
              show_default=True, help="Scenarios of each twin.")  # fmt: skip
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True)
def main(twin_examples: int, jobs: int) -> None:
    """Play the entries of the bug bank that have no figures."""
    listed = {entry.name: entry for entry in entries()}
    known = [row for row in BANK.read() if row.id in listed]
    BANK.write(known)
    has_figures = {row.id for row in known if row.twin_examples >= twin_examples}
    new = [entry for entry in listed.values() if entry.name not in has_figures]
    options = replace(BUDGET, twin_examples=twin_examples, jobs=jobs)
    if new:
        for result in play_all(new, options):
            BANK.put(BankRow.of(result))
    click.echo(f"played: {', '.join(each.name for each in new) or 'none is missing'}")


if __name__ == "__main__":
    run_command(main, "python -m studies.pages.bank_figures")
