"""The command: try mutants of the synchronizer, and list the survivors.

Exit codes: 0 each mutant is noticed or equivalent, 1 some survive, 2 bad usage (one line on
stderr), 3 the unchanged synchronizer fails, so a trial of a mutant shows nothing, 130
interrupted.
"""

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from studies.crews import with_crew
from studies.mutants.generation import Mutant, drawn, mutants, unchanged
from studies.mutants.results import Outcomes, reasons, store, stored, survivors, table
from studies.mutants.trial import Outcome, Trial, tried
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
    chosen = [mutant for mutant in mutants() if mutant.id.startswith(only)]
    if not chosen:
        raise click.UsageError(f"no mutant has an id that starts with {only!r}")
    if json_path is not None and not json_path.absolute().parent.is_dir():
        raise click.UsageError(f"cannot write {str(json_path)!r}: no such folder")
    equivalent = {} if only else reasons()
    if sample is not None:
        chosen = drawn([m for m in chosen if m.id not in equivalent], sample)
    # A survivor that has an explanation by now is no outcome any more.
    read = stored(json_path)
    outcomes = {id_: each for id_, each in read.items() if id_ not in equivalent}
    known = {id_: each.killed_by for id_, each in outcomes.items()}
    left = [
        m for m in chosen if m.id not in equivalent and (again or not known.get(m.id))
    ]
    console = Console(highlight=False, soft_wrap=True)
    if not only and (failed := tried(Trial(unchanged(), examples)).killed_by):
        click.echo(f"mutants: unchanged, it fails: {failed}", err=True)
        return BROKEN
    trials = [Trial(each, examples, known.get(each.id, "")) for each in left]
    for trial, outcome in crew(tried, trials):
        mutant = trial.mutant
        outcomes[mutant.id] = outcome
        console.print(_line(mutant, outcome), markup=False)
        if json_path is not None:
            store(json_path, mutant.id, outcome)
    return _summary(console, chosen, outcomes, equivalent)


def _line(mutant: Mutant, outcome: Outcome) -> str:
    fate = outcome.killed_by or "SURVIVED"
    cost = f"{outcome.examples} scenarios, {outcome.seconds:.1f} s"
    return f"{mutant.id} {mutant.place}: {fate} ({cost})"


def _summary(
    console: Console,
    chosen: Sequence[Mutant],
    outcomes: Outcomes,
    equivalent: dict[str, str],
) -> int:
    console.print(table(chosen, outcomes, equivalent))
    alive = survivors(chosen, outcomes)
    for mutant in alive:
        console.print(f"\nSURVIVOR {mutant.id}, {mutant.place}", markup=False)
        console.print(mutant.diff, markup=False)
    return SURVIVED if alive else 0


if __name__ == "__main__":
    run_command(main, "python -m studies.mutants")
