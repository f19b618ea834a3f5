"""A violation: a property that does not hold, its cause, and signs that tell its defect.

Note [One defect or two]
    A violation shows signs, and each of its findings lists the signs that would explain the
    finding as well. A violation is another form of one that explains all of its findings
    (`Clues.explain`). Signs are equal as values; no text is compared.

    | sign | shown by | explains |
    |---|---|---|
    | `CauseSign` | a wrong gradient, by its cause | another wrong gradient whose value fits that cause, or too few elements in collectives |
    | `Circumstance.IN_TENSOR_HOOK` | a hook that runs before accumulation | findings of a step in which a tensor hook launched |
    | `Circumstance.AFTER_RIGHT_STEP` | state that was not reset | findings of a step after right ones alone |
    | `Circumstance.AFTER_REBINDING` | hooks or buffers that `unbind()` left | findings after `unbind()` and `bind()` alone |
    | `Circumstance.OTHER_CONTENTS` | ranks that meet and disagree | wrong gradients that no trace proves, where buckets may differ; a second run that acts otherwise |
    | `Circumstance.UNSENT_ZEROS` | zeros that no collective has | zeros of a gradient with one contributing rank |
    | `Meeting` | a disagreement of ranks, by the lines of its collectives | another disagreement of the line; a gradient beside others in that collective |
    | `Skipped` | ranks that never issue a peer's collective | a gradient that its rank does not send, and a peer does |
    | `Early` | a reduction before the last micro-batch | that reduction, and work without an order of the same line |
    | `Incomplete` | a gradient that was reduced before its last contribution, by the line of the reduction | autograd's work on that memory while the reduction may use it |
    | `Pair` | work without an order, by its two lines | the same pair; a pair that the remedy of another one orders |
    | `Unawaited` | the line that does not wait | work of that line that fits no other property |
    | `Raised` | an exception, by its class and the last line | the same exception on another rank or in another step |

    Whether one property may violate another is declared by the two: `Property.leads_to`
    and `Property.follows`.
"""

import builtins
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum, auto
from typing import Self

from syncverify.judge.evidence import NO_EVIDENCE, Evidence
from syncverify.trace.run import Detail
from syncverify.trace.source_lines import Origin

Identity = tuple[str, str]  # property and cause of a violation


class Sign:
    """A fact that violations of one defect have in common; signs of different classes differ."""

    __slots__ = ()


class Circumstance(Sign, Enum):
    """A fact of the run around a finding."""

    IN_TENSOR_HOOK = auto()
    AFTER_RIGHT_STEP = auto()
    AFTER_REBINDING = auto()
    OTHER_CONTENTS = auto()
    UNSENT_ZEROS = auto()


@dataclass(frozen=True, slots=True)
class CauseSign(Sign):
    """The cause of a wrong gradient."""

    name: str


@dataclass(frozen=True, slots=True)
class Meeting(Sign):
    """A line at which ranks meet in a collective."""

    path: str  # end of the path
    number: int


@dataclass(frozen=True, slots=True)
class _OfLine(Sign):
    line: Origin


class Skipped(_OfLine):
    """A collective of a line that some ranks skip."""


class Early(_OfLine):
    """A reduction of a line before the last micro-batch."""


class Incomplete(_OfLine):
    """A reduction of a line before the last contribution to a gradient."""


@dataclass(frozen=True, slots=True)
class Pair(Sign):
    """Two uses of memory without an order."""

    first: Origin
    second: Origin | None  # None for memory that is given out again
    is_carried: bool = False  # the remedy of another pair orders this one as well


@dataclass(frozen=True, slots=True)
class Unawaited(Sign):
    """A line that queues work on a stream which waits too little."""

    line: Origin
    stream: str


@dataclass(frozen=True, slots=True)
class Raised(Sign):
    """An exception of the subject."""

    name: str  # of the class
    at: Detail | None  # last line of the details


Signs = frozenset[Sign]


@dataclass(frozen=True, slots=True)
class Clues:
    """The signs of a violation; see Note [One defect or two]."""

    shows: Signs = frozenset()
    # For each finding, the signs of which each would explain the finding too, if another violation
    # shows it; an empty set where the finding is a mistake apart.
    explained_by: frozenset[Signs] = frozenset()

    @classmethod
    def of_finding(cls, shows: Signs, explained_by: Signs) -> Self:
        """Return the clues of one finding."""
        return cls(shows, frozenset({explained_by}))

    def __or__(self, other: Self) -> Self:
        """Return the clues of several violations of one identity."""
        shows = self.shows | other.shows
        return type(self)(shows, self.explained_by | other.explained_by)

    def explain(self, other: Self) -> bool:
        """Tell whether the mistake with these signs explains every finding of another one."""
        findings = other.explained_by
        return bool(findings) and all(self.shows & finding for finding in findings)


@dataclass(frozen=True, slots=True)
class Violation:
    """One property that does not hold, with its cause.

    A check finds one for each place; `merge` joins those of a cause, and names the property.
    """

    property: str  # "" until `merge` gives it
    cause: str
    summary: str  # one sentence: expectation, fact, place
    ranks: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()  # names
    evidence: Evidence = NO_EVIDENCE  # the facts behind the summary
    # Signs that it shares with other violations of one defect.
    clues: Clues = field(default=Clues(), repr=False, compare=False)

    @builtins.property
    def rank(self) -> int | None:
        """Return the first rank that shows it; None where no single rank does."""
        return self.ranks[0] if self.ranks else None

    @builtins.property
    def parameter(self) -> str | None:
        """Return the first parameter concerned; None where it is about none."""
        return self.parameters[0] if self.parameters else None

    @builtins.property
    def identity(self) -> Identity:
        """Return property and cause, which tell the violations of a search apart."""
        return (self.property, self.cause)


def finding(
    cause: str,
    summary: str,
    rank: int | None = None,
    parameters: str | tuple[str, ...] | None = None,
    evidence: Evidence = NO_EVIDENCE,
    shows: Signs = frozenset(),
    explained_by: Signs = frozenset(),
) -> Violation:
    """Return what a check finds in one place; signs are those of `Clues`."""
    return Violation(
        property="",
        cause=cause,
        summary=summary,
        ranks=() if rank is None else (rank,),
        parameters=(parameters,) if isinstance(parameters, str) else parameters or (),
        evidence=evidence,
        clues=Clues.of_finding(shows, explained_by),
    )


@dataclass(frozen=True, slots=True)
class Words:
    """The words of a cause. Of a training they have places for facts, such as `{axes}`."""

    meaning: str  # the mistake, in one sentence
    hint: str  # the repair to try first


@dataclass(frozen=True, slots=True)
class Mistake(Words):
    """The row of a cause that violations, or wrong values of a training, may have."""

    _: KW_ONLY
    # Words of a case, "" where they are the same: `of_means` and `of_factors` under such a contract;
    # of a training, the first flag of its typed cause, or name of the quantity, that is true.
    cases: Mapping[str, Words] = field(default_factory=dict, hash=False)
    # It tells the place or the count of an error, but not its reason. Another scenario, often a
    # smaller one, may show a better cause of the same defect.
    is_vague: bool = False
    # The value of a gradient tells it. Several mistakes may lead to one value; where the trace of
    # the run leaves only one, that one is certain.
    is_of_value: bool = False
    # Circumstance of the findings that it explains; see Note [One defect or two].
    shows: Circumstance | None = None
    # Causes of the same property that the same defect has then as well.
    leads_to: tuple[str, ...] = ()


# Mistakes by the short name of their cause, which is stable across scenarios.
Mistakes = Mapping[str, Mistake]


def is_exception(cause: str) -> bool:
    """Tell whether a cause is an exception of the subject: `raised_` and its class."""
    return cause.startswith("raised_")


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of a wrong gradient."""

    kind: str  # stable across scenarios
    text: str  # a sentence that names ranks, micro-batches, steps, parameters
    is_certain: bool = True
    lines: tuple[Origin, ...] = ()  # named by the text
