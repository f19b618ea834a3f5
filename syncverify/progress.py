"""The progress of a search, as the caller of the search receives it."""

from typing import Any, Protocol, TypeVar

FoundT = TypeVar("FoundT", contravariant=True)


class Progress(Protocol[FoundT]):
    """Receives the progress of a search; `FoundT` is the type of its violations."""

    def played(self, num_examples: int, num_violations: int) -> None:
        """Receive the numbers of scenarios and distinct violations so far.

        An `EndedError` that is raised here ends the exploration.
        """

    def found(self, violation: FoundT) -> None:
        """Receive a violation at the moment at which it is first met, before it is shrunk."""

    def shrinking(self, identity: tuple[str, str], num_runs: int) -> None:
        """Receive the number of runs made so far to shrink one violation."""

    def shrunk(self, violation: FoundT) -> None:
        """Receive a violation in the smallest scenario that shows it."""


class SilentProgress:
    """Progress that is not shown."""

    def played(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    found = shrinking = shrunk = played
