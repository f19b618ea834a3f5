"""Verify all peers that are installed.

python -m studies.peers [--examples N] [--store] [NAME ...]

Exit codes: 0 every violation is known (`Peer.known`), 1 there is another one, 2 bad usage,
130 interrupted.
"""

import functools
import sys
from contextlib import closing

import click
import torch

from studies.harness import play_all
from studies.peers.roster import PEERS
from studies.peers.stored_runs import PART, STORED
from studies.searches import SearchRow
from syncverify.command.process_exit import run_command
from syncverify.command.verification.reported_search import run_search
from syncverify.errors import SubjectError
from syncverify.processes.calls import run_here
from syncverify.scenario.settings import Settings
from syncverify.subjects.subject import resolve

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
    play = functools.partial(_played, settings=settings)
    stored = STORED if stores else None
    rows = play_all(run_here, play, names or PEERS, line=_told, rows=stored)
    if stores:
        PART.write()
    sys.exit(any({*row.violations} - PEERS[row.subject].known for row in rows))


def _played(name: str, settings: Settings) -> SearchRow | str:
    """Search for violations of a peer; return why it is skipped, if it is."""
    try:
        subject = resolve(name)
    except SubjectError as error:
        return f"skipped: {error}"
    peer = PEERS[name]
    with closing(peer.open(subject)) as backend:
        return SearchRow.of(run_search(subject, backend, settings), peer.package)


def _told(row: SearchRow) -> str:
    head = (
        f"{row.subject} on {row.backend}: {row.examples} scenarios, {row.num_properties} "
        f"properties, {len(row.violations)} violations"
    )
    found = zip(row.violations, row.tokens, strict=True)
    replays = (
        f"  {each}: syncverify replay {token} {row.subject}" for each, token in found
    )
    return "\n".join([head, *replays])


if __name__ == "__main__":
    run_command(main, "python -m studies.peers")
