"""The form of the feature table: a topic, its rows, and the name of a feature.

A *feature* is a topic and a value, spelled `topic=value`. A *word* is the text in a field of a
scenario: the plain word of a topic, the value of a feature, or a *variant* of a feature. A
variant is spelled `value/variant`: a contract covers a feature with all its variants, and
promises the same of them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self

from typing_extensions import override

Promise = Literal["right", "right_or_error"]
ChangeKind = Literal["freeze", "cast", "move"]
# Part of a scenario in which a feature occurs. A function about a parameter takes the mesh too.
ScenarioPart = Literal["mesh", "parameter", "scenario"]


class Feature(NamedTuple):
    """A content of scenarios, spelled `topic=value`, such as `event=tail`."""

    topic: str
    value: str  # without a variant

    @override
    def __str__(self) -> str:
        """Spell the feature as contracts do."""
        return f"{self.topic}={self.value}"

    @classmethod
    def of(cls, name: str) -> Self:
        """Return the feature that a contract spells."""
        topic, _, value = name.partition("=")
        return cls(topic, value)


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One word of the table: a feature, a variant of one, or the plain word of a topic."""

    value: str  # of the feature; `value/variant` for another way to do the same
    meaning: str = ""  # for pages and reports; "" where the value alone says it
    # Promise that `features` of a contract demands: the right gradient; or the right gradient or
    # a clear error. None for the topic's promise.
    promise: Promise | None = None
    # Tells whether a part of a scenario has the feature. None if the topic reads the word itself.
    occurs: Callable[..., bool] | None = None
    part: ScenarioPart | None = None  # that `occurs` takes, if not the topic's
    # Reasons by the features with which no drawn scenario combines this one. A topic alone stands
    # for all its values.
    never_with: Mapping[str, str] = field(default_factory=dict)
    rare: str = ""  # reason why it is played on request, and never drawn
    needs: str = ""  # feature without which no scenario has this one
    # Smaller number of its kind; a contract without that one leaves this one out.
    gone_with: str = ""
    since: int = 1  # version of the table that has added the row, see `TABLE_VERSION`
    # Gradients that show a mistake with it: those that ranks sum, those of any parameter that is
    # trained, or `any` for parameters without a gradient too.
    shows_on: Literal["summed", "trained", "any"] = "summed"
    is_beside: bool = False  # whether it only comes beside another value of its topic
    # Whether no search seeks pairs with it: it is drawn rarely, since it takes long.
    is_alone: bool = False
    one_in: int = 0  # draws among which one has it; 0 for the topic's number
    fewest_dims: int = 0  # of a parameter that takes the word
    never_reduced: bool = False  # whether plain steps never reduce its parameter
    fewest_parameters: int = 1  # reduced ones on which it can show an effect
    fewest_micro_batches: int = 1  # of a step in which it can


@dataclass(frozen=True, slots=True, eq=False)
class BackwardRow(Row):
    """A way to run backward."""

    # Whether a gradient accumulates in two halves, which have to be whole numbers.
    halves: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class EventRow(Row):
    """An event of a step."""

    has_backward: bool = True
    waits: int = 1  # calls of `wait()`; a step without one is thrown away
    more_backwards: int = 0  # beyond those agreed on
    even_ranks_alone: bool = False  # whether odd ranks leave out the last micro-batch
    lasts: float = 0  # later steps in which the effect is still present
    # The caller sets every n-th gradient to None after `zero_grad()`; 0 for none.
    drops_every: int = 0
    every: int = 1  # the caller replaces every n-th gradient
    first: int = 0  # position of the first parameter whose gradient goes
    factor: float = 0  # of tensors in the place of gradients; 0 for none
    # Change of the parameters, from this step on: some are frozen or trained, or all are cast or
    # moved. It comes between `wait()` and `zero_grad()`, or before the step.
    change: ChangeKind | None = None
    is_before_zero: bool = False
    rebinds: bool = False  # whether the caller unbinds and binds after the step
    is_thrown_away: bool = False  # whether its gradients are, without `zero_grad()`

    @property
    def shows_later(self) -> bool:
        """Tell whether later steps show its effect, and not the gradients of its own step."""
        return (
            not self.waits
            or self.drops_every > 0
            or self.is_before_zero
            or self.rebinds
            or self.is_thrown_away
            or variant(self.value) == "replaced"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Topic:
    """A topic of the table."""

    # If it has a plain word, also the field of the part with the word. `events` of a scenario has
    # a word for each step.
    name: str
    rows: tuple[Row, ...]
    part: ScenarioPart = "scenario"  # in which its values occur
    # The plain word. Scenarios leave it out of their JSON, and shrinking leads to it.
    plain: Row | None = None
    # Lists values of a part, beside those of rows with `occurs`. None for the word of the field,
    # and for topics whose rows all have `occurs`.
    values: Callable[..., Iterable[str]] | None = None
    # Promise of rows without one; None for values of plain steps, which a contract covers unless
    # its `outside` names them.
    promise: Promise | None = None
    usual: tuple[str, ...] = ()  # values of most scenarios; a focus is on the others
    one_in: int = 4  # draws among which one has no plain word, or a rare kind
    fits_any: bool = False  # whether every plain scenario can take each of its words
    is_needed: bool = False  # whether every scenario has a value of the topic

    @property
    def plain_word(self) -> str:
        """The plain word of a topic that has one."""
        assert self.plain is not None, self.name
        return self.plain.value

    def words_in(self, part: Any) -> Iterable[str]:
        """List the words of the topic's field in a part of a scenario."""
        return part.events if self.name == "event" else (getattr(part, self.name),)


def base_word(word: str) -> str:
    """Return the word of the feature to which a word belongs, without its variant."""
    return word.partition("/")[0]


def variant(word: str) -> str:
    """Return the variant that a word names behind the word of its feature, or ""."""
    return word.partition("/")[2]


def never(reason: str, *names: str) -> dict[str, str]:
    """Return one reason for each of some features or topics."""
    return dict.fromkeys(names, reason)
