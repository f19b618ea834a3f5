"""A program of the red team: an entry of the registry, with the verdict that it deserves.

A class is a program if `wrong` or `right` marks it, as `reported` marks a defect of the bank.
"""

import re
from collections.abc import Callable
from typing import Any

from syncverify.scenario.contract import Capabilities
from syncverify.scenario.settings import DEFAULT_RANKS
from syncverify.subjects.bugbank.entry import Entry, Marked, marking
from syncverify.subjects.subject import resolve


def wrong(*, trigger: str, **fields: Any) -> Callable[[Marked], Marked]:
    """Mark a class as a wrong program.

    Args:
        trigger: As in `Entry`.
        fields: The features that the contract `needs`, other fields of it, and `max_ranks`.

    Returns:
        A decorator that leaves the class as it is.
    """
    return marking(lambda subject: _program(subject, trigger, fields, is_wrong=True))


def right(*, since: str, **fields: Any) -> Callable[[Marked], Marked]:
    """Mark a class as a right program; `since` gives the reason that it is right."""
    return marking(lambda subject: _program(subject, since, fields, is_wrong=False))


def _program(
    subject: type[Any], trigger: str, fields: dict[str, Any], *, is_wrong: bool
) -> Entry:
    of_contract = {"varying_accumulations": True, "takes_cuda_streams": True} | fields
    max_ranks = of_contract.pop("max_ranks", DEFAULT_RANKS)
    features = frozenset(of_contract.pop("needs", ()))
    words = re.findall("[A-Z]+[a-z0-9]*", subject.__name__)
    # The second team's programs declare their contracts, as a user's synchronizers do.
    is_declared = subject.__module__.startswith(f"{__package__}.second.")
    return Entry(
        name="-".join(words).lower(),
        family=subject.__module__.rpartition(".")[2].replace("_", " "),
        subject=subject,
        trigger=trigger,
        is_wrong=is_wrong,
        contract=(
            resolve(subject).capabilities
            if is_declared
            else Capabilities(**of_contract, features=features)
        ),
        max_ranks=max_ranks,
    )
