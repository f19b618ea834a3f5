"""Verify all peers that are installed.

python -m studies.peers [--examples N] [--store] [NAME ...]

Exit codes: 0 every violation is known (`Peer.known`), 1 there is another one, 2 bad usage,
130 interrupted.
"""

import sys
from contextlib import closing

import click
import torch

from studies.peers.roster import PEERS
from studies.peers.stored_runs import PART, STORED
from studies.searches import SearchRow
from syncverify.command.process_exit import run_command
from syncverify.errors import SubjectError
from syncverify.settings import Settings
from syncverify.subjects.subject import resolve
from syncverify.verification.reported_search import run_search

RANKS = 4


@click.command()
@click.argument(
    "names", nargs=-1, type=click.Choice(sorted(PEERS)), metavar="[NAME]..."
)
@click.option("--examples", type=click.IntRange(min=1), default=200, show_default=True,
              help="Scenarios a peer.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--store", "stores", is_flag=True,
              help="Store the results, and write their table into docs/findings.md.")  # fmt: skip
def main(names: tuple[str, ...], examples: int, seed: int, *, stores: bool) -> None:
    """Verify the synchronizers of other projects: NAMEs, or all that are installed."""
    torch.set_num_threads(1)
    settings = Settings(ranks=RANKS, examples=examples, seed=seed)
    is_news = False
    for name in names or PEERS:
        row = _played(name, settings)
        if isinstance(row, str):
            click.echo(f"{name}: skipped: {row}")
            continue
        if stores:
            STORED.put(row)
        _tell(row)
        is_news = is_news or not PEERS[name].known.issuperset(row.violations)
    if stores:
        PART.write()
    sys.exit(is_news)


def _played(name: str, settings: Settings) -> SearchRow | str:
    """Search for violations of a peer; return why it is skipped, if it is."""
    try:
        subject = resolve(name)
    except SubjectError as error:
        return str(error)
    peer = PEERS[name]
    with closing(peer.open(subject)) as backend:
        return SearchRow.of(run_search(subject, backend, settings), peer.package)


def _tell(row: SearchRow) -> None:
    click.echo(
        f"{row.subject} on {row.backend}: {row.examples} scenarios, {row.num_properties} "
        f"properties, {len(row.violations)} violations"
    )
    for violation, token in zip(row.violations, row.tokens, strict=True):
        click.echo(f"  {violation}: syncverify replay {token} {row.subject}")


if __name__ == "__main__":
    run_command(main, "python -m studies.peers")
