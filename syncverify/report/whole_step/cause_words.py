"""The words of a cause of wrong values, with its facts; the words are rows of `judge/causes/`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from syncverify.judge.causes import CAUSES
from syncverify.judge.violation import Words
from syncverify.judge.whole_step import causes
from syncverify.judge.whole_step.values import Quantity
from syncverify.plain_text import named
from syncverify.report.whole_step.shown import MAX_NAMES, printed, some_names

# The part of a checkpoint that has each kind of value.
_HELD = {
    Quantity.LOADED: "the model's state_dict()",
    Quantity.LOADED_STATE: "the optimizer's state_dict(), step counters too",
    Quantity.LOADED_RATE: "the schedule's state_dict()",
    Quantity.LOADED_SCALE: "the scaler's state_dict()",
    Quantity.LOADED_GENERATOR: "torch.get_rng_state() of each rank",
}


def words_of(cause: causes.StepMistake, quantity: Quantity) -> Words:
    """Return the words of a cause of wrong values of a kind, without places for facts."""
    row, facts = CAUSES[cause.kind], {"held": _HELD.get(quantity, "the listed values")}
    true = (e for e in row.cases if e == quantity.name or getattr(cause, e, False))
    words = row.cases.get(next(true, ""), row)
    for name in (each.name for each in fields(cause)):
        facts[name] = _SHOWN.get(name, str)(getattr(cause, name))
    facts |= _own_facts(cause, quantity)
    meaning, hint = words.meaning or row.meaning, words.hint or row.hint
    return Words(meaning.format_map(facts), hint.format_map(facts))


def _own_facts(cause: causes.StepMistake, quantity: Quantity) -> Mapping[str, str]:
    """Return the facts of a class of causes that are no field, or are shown in another way."""
    match cause:
        case causes.LacksSum(_, factor) | causes.ReducedOver(_, _, factor):
            is_sum = isinstance(cause, causes.LacksSum)
            how = "then a factor of" if is_sum else "multiplied by"
            return {"times": f", and {how} {_factor(factor)}" if factor != 1 else ""}
        case causes.TermsWeighted(factors):
            counts = [f"{n} counts {_factor(f)} times" for n, f in factors if f != 1]
            return {"counts": " and ".join(counts), "number": _number(cause, ": {}")}
        case causes.UsesWeighted(factors):
            uses = (
                f"use {index} of {len(factors)} in the forward pass "
                + (f"counts {_factor(f)} times what it should" if f else "is lost")
                for index, f in enumerate(factors, start=1)
                if f != 1
            )
            return {"uses": ", ".join(uses), "number": _number(cause, ": {}")}
        case causes.MixedUp(sums):
            rows = [f"{name} has {_sum(right)}" for name, right in sums]
            more = [f"and {n} more"] if (n := len(rows) - MAX_NAMES) > 0 else []
            return {"sums": ", ".join(rows[:MAX_NAMES] + more)}
        case causes.Scaled(factor):
            is_larger = cause.is_larger
            return {
                "factor": _factor(factor if is_larger else 1 / factor),
                "changed": "multiplied" if is_larger else "divided",
                "repair": "divide" if is_larger else "multiply",
                "number": _number(cause),
                "and_number": _number(cause, ", {}"),
            }
        case causes.MicroBatchesWeighted(factors):
            return {"factors": _factors(factors)}
        case causes.RanksScaled(factors):
            ranks = dict[float, list[int]]()
            for rank, factor in factors:
                ranks.setdefault(factor, []).append(rank)
            by = (f"by {_factor(f)} on {named('rank', r)}" for f, r in ranks.items())
            return {"by": ", ".join(by)}
        case causes.OtherOption():
            return {"number": _number(cause, "; the factor is {}")}
        case causes.OtherCoefficient(wrong, right, norm):
            each = (f"rank {r}: {printed(c, right)}" for r, c in wrong.items())
            facts = {
                "each": ", ".join(each),
                "expected": printed(right, *wrong.values()),
            }
            if norm is not None:
                words = words_of(norm, quantity)
                facts |= {"norm": words.meaning, "remedy": words.hint}
            return facts
        case causes.Misplaced(order):
            return {"count": str(len(order)), "first": str(order[0])}
    return {}


def _sum(right: Iterable[tuple[str, float]]) -> str:
    """Return a sum of right gradients, of one of each named parameter, as text."""
    times = ((f"{_factor(f)} times " if f != 1 else "", name) for name, f in right)
    return " and ".join(f"{factor}that of {name}" for factor, name in times) or "zeros"


def _number(
    cause: causes.TermsWeighted
    | causes.UsesWeighted
    | causes.Scaled
    | causes.OtherOption,
    text: str = "{}",
) -> str:
    """Return "the number of ranks of `dp`" and the like; "" where a factor is no such number."""
    ways = [f"of ranks of {each}" for each in sorted(map(_axes, cause.axes))]
    if getattr(cause, "is_number_of_parts", False):
        ways.append("of micro-batches")
    if isinstance(cause, causes.Scaled):
        ways += (f"of {each}" for each in cause.rows)
    return text.format(f"the number {' or '.join(ways)}") if ways else ""


def _factor(number: float) -> str:
    """Return a factor as text: one that is not 1 is not printed as 1."""
    return printed(number, 1.0)


def _factors(numbers: Iterable[float]) -> str:
    return ", ".join(map(_factor, numbers))


def _axes(axes: Iterable[str]) -> str:
    return " and ".join(f"`{axis}`" for axis in sorted(axes))


# How a field of a cause is shown; any other one as a string.
_SHOWN: Final[Mapping[str, Callable[[Any], str]]] = {
    "axes": _axes,
    "right": _axes,
    "names": some_names,
    "ranks": lambda ranks: named("rank", ranks),
    "functions": lambda listed: " or ".join(dict.fromkeys(name for name, _ in listed)),
    "coefficient": _factor,
    "weights": _factors,
    "limit": "{:g}".format,
    "order": lambda order: ", ".join(map(str, order)),
}
