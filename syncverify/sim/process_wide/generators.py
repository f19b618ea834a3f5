"""Random generators of the process, which belong to the training program.

A subject may draw numbers. It may not seed a generator, nor set it back to an earlier state:
the next dropout would repeat. numpy's generator counts where the program uses numpy.
"""

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch

# State of a Mersenne Twister as `random.getstate()` spells it.
_State = tuple[Any, ...]
_TORCH, _PYTHON, _NUMPY = "torch's generator", "Python's generator", "numpy's generator"
# Blocks of 624 words that a subject may draw from one generator in one run.
_MAX_BLOCKS = 1000
_BITS_OF_BLOCK = 624 * 32


class Generators:
    """Seeds and states as they are now, to be compared later."""

    def __init__(self) -> None:
        self._torch_seed = torch.initial_seed()
        self._states = _twister_states()

    def reseeded(self) -> tuple[str, ...]:
        """Name the generators that were seeded or exchanged since; draws are neither."""
        seeded = [_TORCH] if torch.initial_seed() != self._torch_seed else []
        now = _twister_states()
        # A generator that was loaded since has no state before.
        seeded += [
            name
            for name, state in self._states.items()
            if name not in now or not _may_follow(state, now[name])
        ]
        return tuple(seeded)


class StepDraws:
    """One number of each generator in each step, as a dropout draws in a forward.

    A generator that gives a number twice was set back in between: the numbers have 62 bits
    or more.
    """

    def __init__(self) -> None:
        self._drawn: dict[str, list[object]] = {name: [] for name in _DRAWS}

    def draw(self) -> None:
        """Draw the numbers of a step."""
        for name, draw in _DRAWS.items():
            self._drawn[name].append(draw(len(self._drawn[name])))

    def repeating(self) -> tuple[str, ...]:
        """Name the generators that gave a number twice."""
        return tuple(
            name for name, drawn in self._drawn.items() if len({*drawn}) < len(drawn)
        )


_DRAWS: Final[Mapping[str, Callable[[int], object]]] = {
    _TORCH: lambda _: torch.empty((), dtype=torch.int64, device="cpu").random_().item(),
    _PYTHON: lambda _: random.getrandbits(64),
    _NUMPY: lambda step: _numpy_random().bytes(8) if _numpy_random() else step,
}


def _numpy_random() -> Any:
    """Return `numpy.random`, or None if nobody imported it yet: an import takes long."""
    return sys.modules.get("numpy.random")


def _twister_states() -> dict[str, _State]:
    """Return the states of the generators that are Mersenne Twisters, in Python's spelling."""
    states: dict[str, _State] = {_PYTHON: random.getstate()}
    numpy_random = _numpy_random()
    if numpy_random is not None:
        state = numpy_random.get_state(legacy=False)
        if state["bit_generator"] == "MT19937":  # a program may choose another kind
            words, position = state["state"]["key"], state["state"]["pos"]
            states[_NUMPY] = (random.Random.VERSION, (*words.tolist(), position), None)
    return states


def _may_follow(earlier: _State, later: _State) -> bool:
    """Tell whether a Mersenne Twister comes from one state to another by drawing."""
    if earlier[1][:-1] == later[1][:-1]:
        return True  # the usual case, which needs no twin
    twin = random.Random()
    twin.setstate(earlier)
    for _ in range(_MAX_BLOCKS):
        # The words of a state, without the position that follows them.
        if twin.getstate()[1][:-1] == later[1][:-1]:
            return True
        twin.getrandbits(_BITS_OF_BLOCK)
    return False


@contextmanager
def other_chance(seed: int) -> Iterator[None]:
    """Let torch's and Python's generators draw other numbers in a block, as in another run."""
    with restored_generators():
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        yield


def seed_torch(seed: int) -> None:
    """Seed as `torch.manual_seed` does, without what that keeps for devices that are not in use.

    For each it appends a call and the text of the whole stack (`torch.cuda._lazy_call`), which
    takes longer than a small step, and is never freed.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


@contextmanager
def restored_generators() -> Iterator[None]:
    """Restore the generators after a block; numpy's if numpy is there before it."""
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    numpy_random = _numpy_random()
    generator = numpy_random and numpy_random.get_bit_generator()
    numpy_state = numpy_random and numpy_random.get_state(legacy=False)
    try:
        yield
    finally:
        if numpy_random is not None:
            numpy_random.set_bit_generator(generator)
            numpy_random.set_state(numpy_state)
        torch.set_rng_state(torch_state)
        random.setstate(python_state)


@contextmanager
def unlikely_start() -> Iterator[None]:
    """Let the generators start a block in states that follow no seed of a user.

    Otherwise a subject that seeds would not show in a process that was seeded alike before. Each
    state follows from that of the process, so equal runs stay equal.
    """
    with restored_generators():
        torch.default_generator.manual_seed(int(torch.randint(2**62, ())))
        random.seed(random.getrandbits(256))
        if _NUMPY in _twister_states():
            numpy_random = _numpy_random()
            numpy_random.seed(numpy_random.randint(2**32, size=8, dtype="uint32"))
        yield
