"""The outcomes of mutants: kept in a file during the command, and shown as a table."""

import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table

from studies.mutants.generation import Mutant
from studies.mutants.trial import Outcome

EQUIVALENT = Path(__file__).with_name("equivalent.toml")
Outcomes = dict[str, Outcome]


def reasons() -> dict[str, str]:
    """Read the reason why a mutant is equivalent, by id of the mutant."""
    return tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))


def stored(path: Path | None) -> Outcomes:
    """Read the outcomes of an earlier command.

    Args:
        path: File that `store` has written. None and a missing file hold no outcomes.

    Returns:
        The outcomes, by id of the mutant.
    """
    if path is None or not path.exists():
        return {}
    entries = json.loads(path.read_text(encoding="utf-8"))
    fields = Outcome.__dataclass_fields__
    return {
        entry["id"]: Outcome(**{name: entry[name] for name in fields})
        for entry in entries
    }


def store(path: Path, mutants: Sequence[Mutant], outcomes: Outcomes) -> None:
    """Write the outcomes that are known so far.

    Args:
        path: JSON file, a list with an entry for each mutant that was tried.
        mutants: All mutants.
        outcomes: Outcomes, by id of the mutant.
    """
    entries = [
        {
            "id": m.id,
            "operator": m.operator,
            "place": m.place,
            "diff": m.diff,
            **asdict(outcomes[m.id]),
        }
        for m in mutants
        if m.id in outcomes
    ]
    rows = ",\n".join(map(json.dumps, entries))
    path.write_text(f"[\n{rows}\n]\n", encoding="utf-8")


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
