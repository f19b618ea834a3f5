"""Play the entries of the bug bank that have no figures, and drop figures without an entry.

python -m studies.pages.bank_figures
"""

import json

import click

from studies.pages.bank_page import FIGURES, figures
from syncverify.bugbank.catalogue import entries
from syncverify.command.bank.jobs import play_all
from syncverify.command.bank.play import BankBudget
from syncverify.command.bank.table import to_json


@click.command()
def main() -> None:
    """Play the entries of the bug bank that have no figures."""
    stored = figures()
    known = {row["id"]: row for row in stored["entries"]}
    budget = BankBudget(stored["examples"], stored["twin_examples"], stored["seed"])
    new = [entry for entry in entries() if entry.name not in known]
    played = to_json([*play_all(new, "sim", budget, jobs=1)] if new else [], budget)
    known |= {row["id"]: row for row in played["entries"]}
    stored["entries"] = [known[entry.name] for entry in entries()]
    FIGURES.write_text(json.dumps(stored, indent=2) + "\n", "utf-8")
    click.echo(f"played: {', '.join(each.name for each in new) or 'none is missing'}")


if __name__ == "__main__":
    main()
