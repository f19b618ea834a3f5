"""Verify all peers that are installed, and print a table.

python -m studies.peers [--examples N] [--store] [NAME ...]

Exit codes: 0 every violation is known (`Peer.known`), 1 there is another one, 2 bad usage,
130 interrupted.
"""

import sys
from contextlib import closing

import click
import torch
from rich.console import Console
from rich.table import Table

from studies.peers.peer_result import PeerResult, play
from studies.peers.roster import PEERS
from studies.peers.stored_runs import PART, STORED
from syncverify.command.process_exit import run_command
from syncverify.errors import SubjectError
from syncverify.subjects.subject import resolve


@click.command()
@click.argument(
    "names", nargs=-1, type=click.Choice(sorted(PEERS)), metavar="[NAME]..."
)
@click.option("--examples", type=click.IntRange(min=1), default=None,
              help="Scenarios a peer.  [default: 200]")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--store", "stores", is_flag=True,
              help="Store the results, and write their table into docs/findings.md.")  # fmt: skip
def main(
    names: tuple[str, ...], examples: int | None, seed: int, *, stores: bool
) -> None:
    """Verify the synchronizers of other projects: NAMEs, or all that are installed."""
    torch.set_num_threads(1)
    console = Console()
    rows: list[PeerResult] = []
    for name in names or PEERS:
        try:
            subject = resolve(name)
        except SubjectError as error:
            console.print(f"{name}: skipped: {error}", highlight=False)
            continue
        peer = PEERS[name]
        with closing(peer.open(subject)) as backend:
            rows.append(play(subject, peer, backend, examples or peer.examples, seed))
        if stores:
            STORED.put(rows[-1])
        console.print(f"{name}: {rows[-1].examples} scenarios", highlight=False)
    console.print(_table(rows))
    for row in rows:
        for violation, token in zip(row.violations, row.tokens, strict=True):
            click.echo(
                f"{row.subject}: {violation}: syncverify replay {token} {row.subject}"
            )
    if stores:
        PART.write()
    sys.exit(any(row.has_unknown_violation(PEERS[row.subject].known) for row in rows))


def _table(rows: list[PeerResult]) -> Table:
    table = Table("peer", "backend", "scenarios", "properties", "violations")
    for row in rows:
        table.add_row(
            row.subject,
            row.backend,
            str(row.examples),
            str(row.num_properties),
            str(len(row.violations)),
        )
    return table


if __name__ == "__main__":
    run_command(main, "python -m studies.peers")
