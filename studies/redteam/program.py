"""The programs of the red team: synchronizers, and the verdicts that they deserve.

A class is a program if `wrong` or `right` marks it, as `reported` marks a defect of the bank.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from studies.redteam import right as right_ones
from studies.redteam import second
from studies.redteam import wrong as wrong_ones
from syncverify.bugbank.catalogue import marked
from syncverify.errors import UsageError
from syncverify.scenario.contract import Capabilities
from syncverify.settings import DEFAULT_RANKS
from syncverify.subjects.subject import Subject, resolve

Marked = TypeVar("Marked", bound=type[Any])
_MARK = "__red_team_program__"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program of the red team.

    Attributes:
        subject: The synchronizer.
        is_wrong: Whether some training program gets a wrong result from it.
        topic: For a wrong program a word of `BLIND_SPOTS`, or of `KINDS` in the second team; for
            a right one the unusual thing.
        trigger: Smallest training program that shows the defect; for a right program the
            reason that it is right.
        contract: Contract under which it is played.
        max_ranks: Largest world of a scenario, as for `--ranks`.
    """

    subject: type[Any]
    is_wrong: bool
    topic: str
    trigger: str
    contract: Capabilities
    max_ranks: int = DEFAULT_RANKS

    @property
    def is_of_second_team(self) -> bool:
        """Tell whether the program was written without knowledge of the search."""
        return _is_of_second_team(self.subject)

    @property
    def name(self) -> str:
        """Return the name that `--only` takes."""
        words = re.findall("[A-Z]+[a-z0-9]*", self.subject.__name__)
        return "-".join(words).lower()

    @property
    def mechanism(self) -> str:
        """Describe the program in a sentence."""
        return (self.subject.__doc__ or "").partition("\n")[0]

    @property
    def contract_in_words(self) -> str:
        """Return the features and fields of the contract beside plain steps, or `plain`."""
        plain, own = Capabilities(), self.contract
        named = [
            f"{field}={getattr(own, field)}"
            for field in ("device", "reduction", "tensors")
            if getattr(own, field) != getattr(plain, field)
        ]
        if self.max_ranks != DEFAULT_RANKS:
            named.append(f"--ranks {self.max_ranks}")
        return ", ".join([*sorted(own.features | own.right), *named]) or "plain"

    def resolved(self) -> Subject:
        """Return the subject, to be played."""
        found = resolve(self.subject, self.contract)
        return replace(found, name=self.name)


def wrong(
    topic: str, *, trigger: str, needs: tuple[str, ...] = (), **fields: Any
) -> Callable[[Marked], Marked]:
    """Mark a class as a wrong program.

    Args:
        topic: A word of `BLIND_SPOTS` or `KINDS`.
        trigger: As in `Program`.
        needs: Features of the contract.
        fields: Other fields of the contract, and `max_ranks`.

    Returns:
        A decorator that leaves the class as it is.

    Raises:
        ValueError: The topic is unknown.
    """
    if topic not in {*BLIND_SPOTS, *KINDS}:
        raise ValueError(f"expected a word of BLIND_SPOTS or KINDS, got {topic!r}")
    return _marking(True, topic, trigger, needs, fields)  # a fact, as below


def right(
    topic: str, *, since: str, needs: tuple[str, ...] = (), **fields: Any
) -> Callable[[Marked], Marked]:
    """Mark a class as a right program; `since` gives the reason that it is right."""
    return _marking(False, topic, since, needs, fields)  # a fact


def _marking(
    is_wrong: bool,  # noqa: FBT001  # positional in two calls of this file
    topic: str,
    trigger: str,
    needs: tuple[str, ...],
    fields: dict[str, Any],
) -> Callable[[Marked], Marked]:
    max_ranks = fields.pop("max_ranks", DEFAULT_RANKS)

    def mark(subject: Marked) -> Marked:
        usual = {"varying_accumulations": True, "takes_cuda_streams": True}
        program = Program(
            subject=subject,
            is_wrong=is_wrong,
            topic=topic,
            trigger=trigger,
            contract=(
                resolve(subject).capabilities
                if _is_of_second_team(subject)
                else Capabilities(**{**usual, **fields}, features=frozenset(needs))
            ),
            max_ranks=max_ranks,
        )
        setattr(subject, _MARK, program)
        return subject

    return mark


def _is_of_second_team(subject: type[Any]) -> bool:
    # Its programs declare their contracts themselves, as a user's synchronizers do.
    return subject.__module__.startswith("studies.redteam.second.")


@functools.cache
def programs() -> tuple[Program, ...]:
    """List the programs of each team: wrong ones by blind spot, then right ones by topic."""
    order = [*BLIND_SPOTS, *KINDS]
    packages = (wrong_ones, right_ones, second)
    return tuple(
        sorted(
            itertools.chain(*(marked(package, _MARK) for package in packages)),
            key=lambda each: (
                each.is_of_second_team,
                not each.is_wrong,
                order.index(each.topic) if each.is_wrong else 0,
                each.topic,
                each.name,
            ),
        )
    )


def program_named(name: str) -> Program:
    """Return the program of a name.

    Raises:
        UsageError: There is none of this name.
    """
    for program in programs():
        if program.name == name:
            return program
    raise UsageError(f"unknown program {name!r}: see studies/redteam")
