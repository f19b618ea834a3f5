"""Synchronizers that reduce in an order by hashes of strings, and a twin that does not."""

from collections.abc import Iterable

from torch import nn

from syncverify.subjects.bugbank.bases.plain_grads import PlainGrads

NUM_NAMES = 64  # so many that no two processes share an order by chance


class ReducesByName(PlainGrads):
    """Correct: names are in the order of their letters."""

    def wait(self) -> None:
        for parameter in self.ordered():
            if parameter.grad is not None:
                self.reduce(parameter.grad)

    def ordered(self) -> list[nn.Parameter]:
        """Return each parameter once."""
        last = len(self.parameters)
        names = self.names([f"name {place}" for place in range(NUM_NAMES)])
        places = (int(name.split()[1]) for name in names)
        return [*dict.fromkeys(self.parameters[place % last] for place in places)]

    def names(self, names: list[str]) -> Iterable[str]:
        """Return the names in some order."""
        return sorted(names)


class ReducesByHash(ReducesByName):
    """Names are in the order of their hashes."""

    def names(self, names: list[str]) -> Iterable[str]:
        return sorted(names, key=lambda name: hash(("bucket", name)))


class ReducesBySet(ReducesByName):
    """Names are in the order of a set."""

    def names(self, names: list[str]) -> Iterable[str]:
        return {*names}
