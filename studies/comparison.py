"""One defect of the bug bank, judged by `allclose` on real processes, and by syncverify.

    python -m studies.comparison avg-divides-by-numel

The defect is played in the smallest scenario that shows it. docs/comparison.md has the outcomes
of eight methods on all defects.
"""

from contextlib import closing

import click
import torch

from studies.bank_rows import reproducer_of
from syncverify.command.process_exit import run_command
from syncverify.judge.properties import check
from syncverify.judge.reference import Reference, reference
from syncverify.playing.gloo import GlooBackend
from syncverify.playing.sim import SimBackend
from syncverify.subjects.bugbank.catalogue import entries
from syncverify.trace.run import Run


@click.command()
@click.argument("defect", type=click.Choice([each.name for each in entries()]))
def main(defect: str) -> None:
    """Print the verdicts on a defect of the bank."""
    entry = next(each for each in entries() if each.name == defect)
    found, subject = reproducer_of(entry), entry.defect()
    if found is None:
        raise click.UsageError(f"the search found no scenario that shows {defect}")
    scenario, contract = found.scenario, subject.capabilities
    with closing(GlooBackend()) as gloo:
        on_gloo = gloo.run(scenario, subject)
    click.echo(f"allclose: {_verdict(on_gloo, reference(scenario, contract))}")
    on_sim = SimBackend().run(scenario, subject, found.schedule)
    violations = check(scenario, on_sim, contract)
    click.echo(f"syncverify: {violations[0].summary if violations else 'silent'}")


def _verdict(run: Run, expected: Reference) -> str:
    if run.fault is not None:
        return f"not asked, since {run.fault.summary}"
    return "silent" if _ranks_agree(run, expected) else "ranks differ"


def _ranks_agree(run: Run, expected: Reference) -> bool:
    """Compare reduced gradients with those of the lowest rank that holds the same part."""
    scenario = expected.scenario
    for step in range(scenario.num_steps):
        for spec in scenario.trainable:
            for rank, played in enumerate(run.ranks):
                first = run.ranks[expected.contributors(spec, rank)[0]]
                mine, other = (each.at("reduced", step) for each in (played, first))
                if mine is None or other is None:
                    continue  # the step was thrown away
                if not _are_close(
                    mine.gradients[spec.name], other.gradients[spec.name]
                ):
                    return False
    return True


def _are_close(mine: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if mine is None or other is None:
        return mine is other
    return mine.dtype == other.dtype and torch.allclose(mine, other)


if __name__ == "__main__":
    run_command(main, "python -m studies.comparison")
