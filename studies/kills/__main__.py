"""Disturb commands at random moments, and judge how each one ends.

    python -m studies.kills kills.jsonl --trials 500 --jobs 2

Linux only. Each line of the file is one command; a run continues the file. The exit code is
1 if any command ended as it should not.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import click

from studies.crews import with_crew
from studies.kills.trial import line_of
from syncverify.command.process_exit import run_command
from syncverify.processes.calls import Crew


@click.command()
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--trials", type=click.IntRange(min=1), default=500, show_default=True)
@with_crew
def main(path: Path, trials: int, crew: Crew) -> None:
    """Play the trials that PATH does not have yet, and print what was found."""
    lines = path.read_text().splitlines() if path.exists() else []
    done = {json.loads(line)["number"] for line in lines}
    missing = [number for number in range(trials) if number not in done]
    with path.open("a") as file:
        for _, line in crew(line_of, missing):
            print(line, file=file, flush=True)  # a file, not the screen
            lines.append(line)
            _tell(json.loads(line))
    click.echo(_summary([*map(json.loads, lines)]))
    sys.exit(any(json.loads(line)["faults"] for line in lines))


def _tell(trial: dict[str, Any]) -> None:
    kills = ", ".join(f"{name} to {kind}" for kind, name in trial["kills"]) or "none"
    verdict = "; ".join(trial["faults"]) or "as it should"
    click.echo(
        f"{trial['number']} {trial['backend']}: {kills}: exit code {trial['code']}, {verdict}"
    )


def _summary(lines: list[dict[str, Any]]) -> str:
    kills = Counter(
        f"{name} to {kind}" for each in lines for kind, name in each["kills"]
    )
    faults = sum(bool(each["faults"]) for each in lines)
    counted = ", ".join(f"{count} {what}" for what, count in sorted(kills.items()))
    return (
        f"{sum(kills.values())} signals to {len(lines)} commands ({counted}); "
        f"{faults} ended as they should not"
    )


if __name__ == "__main__":
    run_command(main, "python -m studies.kills")
