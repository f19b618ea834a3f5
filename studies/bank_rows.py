"""The stored figures of the bug bank: a row for each entry."""

from dataclasses import dataclass, replace
from typing import Final, Self

from studies.rows import RESULTS, RowFile, today
from syncverify.command.bank.play import EntryResult
from syncverify.scenario.replay_token import Reproducer, decode
from syncverify.scenario.settings import BankOptions
from syncverify.subjects.bugbank.entry import Entry

BUDGET: Final = BankOptions(examples=500, twin_examples=10, seed=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BankRow:
    """The result of an entry on `sim`.

    Attributes:
        id: Name of the entry.
        date: Day of the play.
        examples: Scenarios up to the one that shows the defect.
        seconds: Time up to there.
        property: Property that is violated; empty where the defect was missed.
        cause: Cause of the violation.
        contract: Smallest contract that covers the smallest scenario.
        ranks: Ranks of that scenario.
        parameters: Its parameters.
        steps: Its steps.
        token: Token that replays it.
        is_cause_right: Whether the entry names the cause.
        twin_examples: Scenarios in which the twin was played.
        twin_played_for: Name of the entry for which the twin was played.
        alarm: Property that the twin violated; empty for none.
    """

    id: str
    date: str
    examples: int
    seconds: float
    property: str = ""
    cause: str = ""
    contract: str = ""
    ranks: int = 0
    parameters: int = 0
    steps: int = 0
    token: str = ""
    is_cause_right: bool = False
    twin_examples: int = 0
    twin_played_for: str = ""
    alarm: str = ""

    @classmethod
    def of(cls, result: EntryResult) -> Self:
        """Return the row of a result."""
        caught, alarm = result.caught, result.alarm
        row = cls(
            id=result.id,
            date=today(),
            examples=result.examples,
            seconds=result.seconds,
            is_cause_right=result.is_cause_right,
            twin_examples=result.twin_examples,
            twin_played_for=result.twin_played_for,
            alarm="" if alarm is None else alarm.property,
        )
        names = () if caught is None else caught.__dataclass_fields__
        return replace(row, **{name: getattr(caught, name) for name in names})


BANK: Final = RowFile(RESULTS / "bug_bank.jsonl", BankRow, ("id",))


def caught() -> dict[str, BankRow]:
    """Return the rows of the defects that were caught, by the name of the entry."""
    return {row.id: row for row in BANK.read() if row.property}


def reproducer_of(entry: Entry) -> Reproducer | None:
    """Return the smallest scenario that shows a defect, and its schedule; None if it was missed."""
    row = caught().get(entry.name)
    return None if row is None else decode(row.token)
