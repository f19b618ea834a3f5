"""What each method is given: a defect, its twin, and a scenario that shows it."""

from __future__ import annotations

from dataclasses import dataclass

from syncverify.replay import Recording
from syncverify.subject import Subject


@dataclass(frozen=True, slots=True)
class Case:
    """One defect.

    Attributes:
        id: Its name.
        section: Part of the bank that it is in.
        is_silent: Whether real hardware shows no error and no hang.
        defect: The subject that has it.
        twin: The same subject without it.
        recording: The smallest scenario that shows it, and with what timing.
    """

    id: str
    section: str
    is_silent: bool
    defect: Subject
    twin: Subject
    recording: Recording
