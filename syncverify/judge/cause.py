"""Causes: the mistakes that violations are known by, and the cause of one wrong gradient."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field

from syncverify.judge.violation import Circumstance
from syncverify.trace.source_lines import Origin


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
    # Circumstance of the findings that it explains; see Note [When it is wrong].
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
