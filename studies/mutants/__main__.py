"""The command: try mutants of the synchronizer, and list the survivors.

Exit codes: 0 each mutant is noticed or equivalent, 1 some survive, 2 bad usage (one line on
stderr), 3 the unchanged synchronizer fails, so a trial of a mutant shows nothing, 130
interrupted.
"""

from pathlib import Path

import click

from studies.harness import play_all, with_crew
from studies.mutants.generation import drawn, mutants, unchanged
from studies.mutants.results import Row, outcomes, reasons, rows_in
from studies.mutants.trial import Trial, tried
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import Crew

SURVIVED, BROKEN = 1, 3


@click.command()
@click.option(
    "--only", default="", help="An id, or the start of ids, such as an operator."
)
@click.option(
    "--examples", type=click.IntRange(min=1), default=500, show_default=True,
    help="Scenarios of the longest search for each.",
)  # fmt: skip
@click.option(
    "--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), default=None,
    help="Write outcomes here, as JSON Lines; an existing file is continued, and its survivors are tried again.",
)  # fmt: skip
@click.option(
    "--sample", type=click.IntRange(min=1), default=None, metavar="N",
    help="Try N mutants, drawn by a fixed seed, that are not known as equivalent.",
)  # fmt: skip
@click.option("--again", is_flag=True, help="Try the mutants in the file once more.")
@with_crew
def main(
    only: str,
    crew: Crew,
    examples: int,
    json_path: Path | None,
    sample: int | None,
    *,
    again: bool,
) -> int:
    """Put mistakes into the synchronizer and see whether they are noticed."""
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise click.UsageError(f"cannot write {str(json_path)!r}: no such folder")
    equivalent = {} if only else reasons()
    chosen = [m for m in mutants() if m.id.startswith(only) and m.id not in equivalent]
    if not chosen:
        raise click.UsageError(f"no mutant has an id that starts with {only!r}")
    if sample is not None:
        chosen = drawn(chosen, sample)
    file = None if json_path is None else rows_in(json_path)
    known = {row.id: row.killed_by for row in (file.read() if file else ())}
    if not only and (failed := tried(Trial(unchanged(), examples)).killed_by):
        click.echo(f"mutants: unchanged, it fails: {failed}", err=True)
        return BROKEN
    left = [each for each in chosen if again or not known.get(each.id)]
    trials = [Trial(each, examples, known.get(each.id, "")) for each in left]
    rows = play_all(crew, tried, trials, line=_line, rows=file)
    click.echo("\n".join(outcomes(rows)))
    alive = {row.id for row in rows if not row.killed_by}
    for mutant in [each for each in left if each.id in alive]:
        click.echo(f"\nSURVIVOR {mutant.id}, {mutant.place}\n{mutant.diff}")
    return SURVIVED if alive else 0


def _line(row: Row) -> str:
    fate = row.killed_by or "SURVIVED"
    return f"{row.id}: {fate} ({row.examples} scenarios, {row.seconds} s)"


if __name__ == "__main__":
    run_command(main, "python -m studies.mutants")
