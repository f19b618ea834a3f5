"""A schedule: which way a run went where timing could have decided.

Some things are up to the machine: which rank moves next, whether a collective that may be
complete is complete already. A run meets such choices one after another. Each is a
decision between numbered options, and option 0 is what the simulated machine does by
itself. A schedule is the list of numbers: with the scenario it fixes a run, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from syncverify.errors import ScenarioFormatError


@dataclass(frozen=True, slots=True)
class Decision:
    """One choice that a run met.

    Attributes:
        kind: What was chosen: `rank` (which moves next), or what a host asked about.
        num_options: How many options there were.
        chosen: Which was taken, from 0.
        meaning: That option in words.
    """

    kind: str
    num_options: int
    chosen: int
    meaning: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """The choices of a run, in order; every later one is option 0.

    So trailing zeros say nothing and are dropped: equal schedules are equal runs. As the
    list ends, a schedule can put something off for long, but not for ever.

    Attributes:
        choices: Number of the option taken, one entry per decision.
    """

    choices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is no list of options, and drop trailing zeros."""
        if not all(type(choice) is int and choice >= 0 for choice in self.choices):
            raise ScenarioFormatError(
                "malformed schedule: choices are whole numbers >= 0"
            )
        last = max((n + 1 for n, c in enumerate(self.choices) if c), default=0)
        object.__setattr__(self, "choices", tuple(self.choices[:last]))

    @classmethod
    def of(cls, decisions: Iterable[Decision]) -> Self:
        """Return the schedule that decides the same once more."""
        return cls(tuple(decision.chosen for decision in decisions))

    def to_json(self) -> list[int]:
        """Return a plain list that `from_json` reads back."""
        return list(self.choices)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read a schedule back.

        Args:
            data: What `to_json` returned, or its parsed JSON text.

        Returns:
            The schedule.

        Raises:
            ScenarioFormatError: The data is no schedule.
        """
        if not isinstance(data, list):
            raise ScenarioFormatError("malformed schedule: expected a list of choices")
        return cls(tuple(data))


DEFAULT_SCHEDULE = Schedule()
