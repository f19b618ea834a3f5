"""The case for all methods: a defect, its fixed twin, and a scenario that shows it."""

from dataclasses import dataclass
from functools import cache

from studies.bank_rows import caught
from syncverify.bugbank.entry import Entry
from syncverify.scenario.token import Reproducer, decode
from syncverify.subjects.subject import Subject


@dataclass(frozen=True, slots=True)
class Case:
    """One defect.

    Attributes:
        id: Id of the entry.
        section: Section of the bank.
        is_silent: Whether real hardware shows no error and no hang.
        defect: The defective subject.
        twin: The same subject without the defect.
        reproducer: The smallest scenario that shows the defect, and its schedule.
    """

    id: str
    section: str
    is_silent: bool
    defect: Subject
    twin: Subject
    reproducer: Reproducer


def case_of(entry: Entry) -> Case | None:
    """Return the case of an entry.

    Args:
        entry: Entry of the bank.

    Returns:
        The case; None for an entry without a token in the figures of the bank.
    """
    token = _tokens().get(entry.id)
    if token is None:
        return None
    return Case(
        id=entry.id,
        section=entry.section,
        is_silent=entry.silent,
        defect=entry.defect(),
        twin=entry.fixed(),
        reproducer=decode(token),
    )


@cache
def _tokens() -> dict[str, str]:
    return {name: row.token for name, row in caught().items()}
