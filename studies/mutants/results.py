"""The outcomes of mutants: kept in a file during the command, and shown as a table."""

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from studies.mutants.generation import Mutant
from studies.mutants.trial import Outcome
from studies.rows import RowFile, today

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
Outcomes = dict[str, Outcome]


def reasons() -> dict[str, str]:
    """Read the reason why a mutant is equivalent, by id of the mutant."""
    return tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Row:
    """The outcome of a mutant.

    Attributes:
        id: Id of the mutant, which begins with its operator.
        date: Day of the trial.
        killed_by: As that of an `Outcome`.
        examples: Scenarios that were played.
        seconds: Time of all stages.
    """

    id: str
    date: str
    killed_by: str
    examples: int
    seconds: float

    @property
    def operator(self) -> str:
        """Name of the operator."""
        return self.id.partition("-")[0]


def rows_in(path: Path) -> RowFile[Row]:
    """Return the rows of a file."""
    return RowFile(path, Row, ("id",))


def stored(path: Path | None) -> Outcomes:
    """Return the outcomes in a file, by id of the mutant; None has none."""
    if path is None:
        return {}
    return {
        row.id: Outcome(row.killed_by, row.examples, row.seconds)
        for row in rows_in(path).read()
    }


def store(path: Path, mutant: str, outcome: Outcome) -> None:
    """Store the outcome of a mutant beside the others of a file."""
    seconds = round(outcome.seconds, 2)
    row = Row(mutant, today(), outcome.killed_by, outcome.examples, seconds)
    rows_in(path).put(row)


def survivors(mutants: Iterable[Mutant], outcomes: Outcomes) -> list[Mutant]:
    """List the mutants that no scenario and no test has noticed."""
    return [m for m in mutants if m.id in outcomes and not outcomes[m.id].killed_by]


def table(
    mutants: Sequence[Mutant], outcomes: Outcomes, equivalent: Iterable[str]
) -> Table:
    """Count mutants by operator.

    Args:
        mutants: All mutants.
        outcomes: Outcomes, by id of the mutant.
        equivalent: Ids of equivalent mutants.

    Returns:
        A row for each operator, and one for all.
    """
    columns = (
        "operator",
        "generated",
        "equivalent",
        "by scenarios",
        "by tests",
        "alive",
    )
    made = Table(*columns, title="mutants by outcome")
    operators = dict.fromkeys(mutant.operator for mutant in mutants)
    known = {*equivalent}
    for name in (*operators, "all"):
        chosen = [m for m in mutants if name in (m.operator, "all")]
        tried = [outcomes[m.id] for m in chosen if m.id in outcomes]
        by_tests = sum(_is_test(outcome) for outcome in tried)
        alive = sum(not outcome.killed_by for outcome in tried)
        counts = (
            len(chosen),
            sum(m.id in known for m in chosen),
            len(tried) - by_tests - alive,
            by_tests,
            alive,
        )
        made.add_row(name, *map(str, counts))
    return made


def _is_test(outcome: Outcome) -> bool:
    return ".py" in outcome.killed_by
