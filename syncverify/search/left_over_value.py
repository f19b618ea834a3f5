"""A value that one step left in a subject for the next."""

from __future__ import annotations

from dataclasses import dataclass

from syncverify.search.plain_state import Part, ShownValue


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A value of a subject that is another where a step begins than where step 0 began.

    Attributes:
        parts: The path from the synchronizer to the value.
        before: The value where step 0 began.
        after: The value where the later step begins.
        step: The later step.
    """

    parts: tuple[Part, ...]
    before: ShownValue
    after: ShownValue
    step: int

    @property
    def path(self) -> str:
        """The path as a text, such as `self.count[p0]`."""
        return "self" + "".join(part.text for part in self.parts)

    @property
    def pattern(self) -> str:
        """The path with a star for each part that is one of many."""
        texts = ("[*]" if part.is_any else part.text for part in self.parts)
        return "self" + "".join(texts)

    @property
    def is_size(self) -> bool:
        """Tell whether the later value is shown as the number of its elements."""
        return self.after.size is not None

    @property
    def is_number(self) -> bool:
        """Tell whether the later value is a whole number, or the size of a container."""
        return self.is_size or self.after.is_whole

    @property
    def is_grown(self) -> bool:
        """Tell whether it is a size, or the count of one parameter or bucket of many.

        A flag, or a number of the whole synchronizer, may be meant to stay.
        """
        is_one_of_many = any(part.is_any for part in self.parts)
        return self.is_size or (self.is_number and is_one_of_many)

    @property
    def text(self) -> str:
        """The fact in one line."""
        verb = "holds" if self.is_size else "is"
        past, size = f"was {self.before.word}", self.before.size
        if self.is_size and size is not None:
            past = f"held {size}"
        return (
            f"{self.path} {verb} {self.after.word} where step {self.step} begins, "
            f"and {past} where step 0 began"
        )
