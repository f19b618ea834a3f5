"""Play drawn scenarios of a program: `syncverify.simulate` with arguments from a seed.

    python -m studies.timemachine.drawn PROGRAM --examples 300 --seed 0 --json REPORT

PROGRAM is a module of `studies.timemachine.programs`. The report has the form of that of
`syncverify run`, as far as the pairs read it. Exit codes: 0 silent, 1 a violation, 2 bad
usage or a scenario that is not simulated.
"""

import importlib
import json
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, cast

import click
import torch

import syncverify
from syncverify.command.process_exit import run_command
from syncverify.plain_text import counted

FOLDER: Final = "studies.timemachine.programs"


class _Drawn(Protocol):
    """A module of programs."""

    draw: Callable[[random.Random], dict[str, Any]]
    program: Callable[..., object]


@click.command()
@click.argument("program")
@click.option("--examples", type=click.IntRange(min=1), required=True)
@click.option("--seed", type=int, required=True)
@click.option("--stop-at-first", is_flag=True)
@click.option("--json", "report", type=click.Path(path_type=Path), required=True)
def main(
    program: str, examples: int, seed: int, report: Path, *, stop_at_first: bool
) -> None:
    """Play scenarios of a program, and write the report."""
    torch.set_num_threads(1)
    module = cast(_Drawn, importlib.import_module(f"{FOLDER}.{program}"))
    found = list[dict[str, Any]]()
    played = 0
    for played in range(1, examples + 1):
        new = [*_violations(module, f"{seed}:{played}")]
        found += [each for each in new if _key(each) not in map(_key, found)]
        if found and stop_at_first:
            break
    content = {"examples": played, "violations": found}
    report.write_text(json.dumps(content), encoding="utf-8")
    sys.exit(bool(found))


def _violations(module: _Drawn, token: str) -> Iterator[dict[str, Any]]:
    """Play one scenario, print its report if it is wrong, and yield the violations."""
    arguments = module.draw(random.Random(token))
    ranks = arguments.pop("ranks")
    simulation = syncverify.simulate(partial(module.program, **arguments), ranks=ranks)
    if simulation.refused:
        raise click.ClickException(f"{token}: {simulation.refused}")
    if simulation.violations:
        scenario = ", ".join(f"{name}={value}" for name, value in arguments.items())
        click.echo(str(simulation).rpartition("\n\n")[0])
        click.echo(f"  scenario:   {counted(ranks, 'rank')}, {scenario}")
        click.echo(f"  replay:     seed {token}")
    for each in simulation.violations:
        violation = each.violation
        yield {
            "property": violation.property,
            "summary": violation.summary,
            "token": token,
            "evidence": {"cause": violation.cause},
        }


def _key(violation: dict[str, Any]) -> tuple[str, str]:
    return violation["property"], violation["evidence"]["cause"]


if __name__ == "__main__":
    run_command(main, "python -m studies.timemachine.drawn")
