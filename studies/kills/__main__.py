"""Disturb commands at random moments, and judge how each one ends.

    python -m studies.kills --trials 500 --jobs 2

Linux only. A trial starts a command on `sim` or gloo, and sends signals to random processes of
it: the owner, its child, the templates that workers are forked from, and workers. The exit code
is 1 if any command ended as it should not.
"""

import sys

import click

from studies.harness import with_crew
from studies.kills.trial import played
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import Crew


@click.command()
@click.option("--trials", type=click.IntRange(min=1), default=500, show_default=True)
@with_crew
def main(trials: int, crew: Crew) -> None:
    """Play trials, and print how each command ended."""
    num_wrong = 0
    for _, trial in crew(played, range(trials)):
        found = trial.faults()
        num_wrong += bool(found)
        kills = ", ".join(f"{name} to {kind}" for kind, name in trial.kills) or "none"
        click.echo(
            f"{trial.number} {trial.backend}: {kills}: exit code {trial.code}, "
            f"{'; '.join(found) or 'as it should'}"
        )
        if found:
            click.echo(trial.output[-4000:])
    click.echo(f"{num_wrong} of {trials} commands ended as they should not")
    sys.exit(bool(num_wrong))


if __name__ == "__main__":
    run_command(main, "python -m studies.kills")
