"""The user-made autograd function whose backward likely makes the gradients that nothing explains.

A wrong backward makes all gradients wrong that lie behind one of its inputs, and no others: what is nearer to
the loss is right. So a function may be the reason if exactly the wrong gradients lie behind some of its inputs.
Another step, such as a wrong reduction, would have to hit exactly these.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from syncverify.judge.whole_step.causes import Unexplained, WrongQuantity
from syncverify.judge.whole_step.differences import TOLERANCE, size_of
from syncverify.judge.whole_step.values import AppliedFunction, Quantity, RankValues


def with_functions(
    finding: WrongQuantity, found: Iterable[WrongQuantity], ranks: Sequence[RankValues]
) -> WrongQuantity:
    """Return a mistake with the functions that may make it; as it was if none fits, or it is another.

    `found` has all mistakes of its play, and `ranks` the values of that play, with its functions.
    """
    if not isinstance(finding.cause, Unexplained):
        return finding
    quantity, step = finding.quantity, finding.step
    wrong = [e for e in found if (e.quantity, e.step) == (Quantity.GRADIENT, step)]
    fitting = [
        dict.fromkeys(
            (each.name, each.lines)
            for each in values.steps[step].functions
            if _fits(each, names, _shown_by(values, step) - _wrong_on(rank, wrong))
        )
        for rank, values in enumerate(ranks if quantity is Quantity.GRADIENT else ())
        if (names := _wrong_on(rank, [finding]))
    ]
    first, *others = fitting or [{}]
    on_all = tuple(each for each in first if all(each in other for other in others))
    return replace(finding, cause=replace(finding.cause, functions=on_all))


def _wrong_on(rank: int, found: Iterable[WrongQuantity]) -> frozenset[str]:
    values = (value for e in found for value in (*e.differences, *e.spread))
    return frozenset(each.name for each in values if rank in each.wrong_ranks)


def _shown_by(values: RankValues, step: int) -> frozenset[str]:
    """Return the gradients of a rank that show a wrong backward above them: zeros may stay zeros."""
    sizes = {n: size_of(v) for n, v in values.tensors(Quantity.GRADIENT, step).items()}
    smallest = TOLERANCE * max(sizes.values(), default=0.0)
    return frozenset(name for name, size in sizes.items() if size > smallest)


def _fits(
    function: AppliedFunction, wrong: frozenset[str], right: frozenset[str]
) -> bool:
    """Tell whether exactly the wrong gradients lie behind some inputs, and some gradient is right."""
    behind = (each for each in function.behind if not each & right)
    explained = frozenset[str]().union(*(each & wrong for each in behind))
    return bool(right) and explained == wrong
