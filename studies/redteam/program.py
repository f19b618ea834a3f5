"""The programs of the red team: entries of the registry, with the verdicts that they deserve.

A class is a program if `wrong` or `right` marks it, as `reported` marks a defect of the bank.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from typing import Any, Final

from studies.redteam import right as right_ones
from studies.redteam import second
from studies.redteam import wrong as wrong_ones
from syncverify.bugbank.catalogue import entry_among, registered
from syncverify.bugbank.entry import Entry, Marked, marking
from syncverify.scenario.contract import Capabilities
from syncverify.settings import DEFAULT_RANKS
from syncverify.subjects.subject import resolve

# Blind spots that the wrong programs use, in the order of the page.
BLIND_SPOTS: Final = {
    "device": "the device is a CPU that claims to be a GPU, or not even that",
    "training": "somebody writes gradients and parameters between steps",
    "initial values": "parameters begin with different values on each rank",
    "metadata": "`.grad` is more than its local numbers",
    "values": "numbers that are not finite, tiny, huge or inexact",
    "sizes": "many elements, parameters, groups, steps, micro-batches or ranks",
    "meshes": "permuted and partial meshes, and several synchronizers",
    "groups": "process groups that are made without meeting",
    "lifecycle": "parameters, gradients, streams and counts change in unusual ways",
    "hooks": "the user's hooks, and gradients that are kept",
    "failures": "collectives that fail, or take long",
    "autograd": "gradients that are undefined, shared, sparse or complex",
    "leftovers": "what stays after `unbind()`, and what piles up",
    "bucket size": "what the cap promises",
    "host copies": "copies that the host reads before they are made",
    "futures": "an order that comes from futures alone",
    "layouts": "collectives move memory, whatever the strides say",
}
# Kinds of the second team's wrong programs, each from a list of mistakes that were missed before.
KINDS: Final = (
    "large numbers",
    "more than four ranks",
    "one of several gradients",
    "one of several is None",
    "new_group",
    "polls that give up",
    "underflow",
    "gradients added by hand",
    "gradients that autograd does not write",
    "hooks of the user",
    "late host copies",
    "parameters born after bind",
    "replicas unequal at bind",
    "HSDP",
    "divide factors",
    "another number of backwards on a rank",
    "gradients sharing one storage",
    "many dims",
    "five dims",
    "evaluation between steps",
    "hashes that order launches",
    "asynchronous errors",
    "missing stream waits",
    "events recorded too early",
    "memory freed early",
    "accumulation counts",
    "zero_grad in flight",
    "placement mistakes with DTensor",
    "bucket cap edges",
    "dtype order",
    "hooks on shared parameters",
    "unbind that leaves hooks",
    "ZeRO owners",
    "two streams",
    "lifecycle",
)


class Program(Entry):
    """An entry of the red team; its family is a word of `BLIND_SPOTS` or `KINDS` if it is wrong."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """Return the blind spot, the kind, or the unusual thing."""
        return self.family

    @property
    def is_of_second_team(self) -> bool:
        """Tell whether the program was written without knowledge of the search."""
        return _is_of_second_team(self.subject)

    @property
    def contract_in_words(self) -> str:
        """Return the features and fields of the contract beside plain steps, or `plain`."""
        plain, own = Capabilities(), self.defect().capabilities
        named = [
            f"{field}={getattr(own, field)}"
            for field in ("device", "reduction", "tensors")
            if getattr(own, field) != getattr(plain, field)
        ]
        if self.max_ranks != DEFAULT_RANKS:
            named.append(f"--ranks {self.max_ranks}")
        return ", ".join([*sorted(own.features | own.right), *named]) or "plain"


def wrong(
    topic: str = "", *, trigger: str, **fields: Any
) -> Callable[[Marked], Marked]:
    """Mark a class as a wrong program.

    Args:
        topic: A word of `BLIND_SPOTS` or `KINDS`; that of the module if it is left out.
        trigger: As in `Entry`.
        fields: The features that the contract `needs`, other fields of it, and `max_ranks`.

    Returns:
        A decorator that leaves the class as it is.

    Raises:
        ValueError: The topic is unknown.
    """
    if topic not in {"", *BLIND_SPOTS, *KINDS}:
        raise ValueError(f"expected a word of BLIND_SPOTS or KINDS, got {topic!r}")
    return marking(lambda subject: _program(subject, topic, trigger, fields))


def right(topic: str = "", *, since: str, **fields: Any) -> Callable[[Marked], Marked]:
    """Mark a class as a right program; `since` gives the reason that it is right."""
    return marking(
        lambda subject: _program(subject, topic, since, fields, is_wrong=False)
    )


def _program(
    subject: type[Any],
    topic: str,
    trigger: str,
    fields: dict[str, Any],
    *,
    is_wrong: bool = True,
) -> Program:
    of_contract = {"varying_accumulations": True, "takes_cuda_streams": True} | fields
    max_ranks = of_contract.pop("max_ranks", DEFAULT_RANKS)
    features = frozenset(of_contract.pop("needs", ()))
    words = re.findall("[A-Z]+[a-z0-9]*", subject.__name__)
    return Program(
        name="-".join(words).lower(),
        family=topic or subject.__module__.rpartition(".")[2].replace("_", " "),
        subject=subject,
        trigger=trigger,
        is_wrong=is_wrong,
        contract=(
            resolve(subject).capabilities
            if _is_of_second_team(subject)
            else Capabilities(**of_contract, features=features)
        ),
        max_ranks=max_ranks,
    )


def _is_of_second_team(subject: type[Any]) -> bool:
    # Its programs declare their contracts themselves, as a user's synchronizers do.
    return subject.__module__.startswith("studies.redteam.second.")


@functools.cache
def programs() -> tuple[Program, ...]:
    """List the programs of each team: wrong ones by blind spot, then right ones by topic."""
    order = [*BLIND_SPOTS, *KINDS]
    packages = (wrong_ones, right_ones, second)
    marked = itertools.chain(*(registered(package) for package in packages))
    return tuple(
        sorted(
            (each for each in marked if isinstance(each, Program)),
            key=lambda each: (
                each.is_of_second_team,
                not each.is_wrong,
                order.index(each.topic) if each.is_wrong else 0,
                each.topic,
                each.name,
            ),
        )
    )


def program_named(name: str) -> Entry:
    """Return the program of a name."""
    return entry_among(programs(), name, page="docs/how-we-know.md")
