"""The order of readiness of gradients: observed in one step, agreed between ranks.

Note [The deciding rank]
~~~~~~~~~~~~~~~~~~~~~~~~
Registration order is a guess; the first reduced step shows the real order. But each
rank may observe another order, and a bucket has to be equal on all of its ranks. So in
each set of ranks the lowest rank decides: it publishes the positions that *it* has
observed for the parameters of the set, and the other ranks take them. A parameter is
identified by its index among the registered parameters of its set, which is equal on
all ranks of the set.

A rank publishes its positions in `wait()`, when the step can get no further gradient. It
reads those of other ranks in `zero_grad()`. So no rank waits for a slow one, and a rank
that never calls `zero_grad()` blocks no other. The positions are published after the
refusals of `wait()`, and before it launches or waits for a reduction. So where a reduction
or a later check raises on one rank only, the other ranks read its positions all the same.
After a refusal there are none: `zero_grad()` of the others raises `PlanMismatchError`.
"""

import json
from collections.abc import Iterable, Sequence

from torch import nn

from syncverify.synchronizer.plan.grouping import Candidate
from syncverify.synchronizer.ranks.notes import Notes

_TOPIC = "readiness"


def with_unseen_last(planned: Sequence[int], observed: Sequence[int]) -> list[int]:
    """Return the observed items in their order, and then the others as planned.

    A parameter that got no gradient may never get one. In the last bucket it keeps no other
    from its launch in backward.
    """
    seen = set(observed)
    return [*observed, *(item for item in planned if item not in seen)]


class ReadinessOrder:
    """The order in which gradients become ready, learned once."""

    def __init__(self, candidates: Sequence[Candidate], notes: Notes | None) -> None:
        self._candidates = candidates
        self._notes = notes
        self._index_of = {
            candidate.plan.parameter: index
            for index, candidate in enumerate(candidates)
        }
        self._own_positions: list[int] = []

    def publish(self, observed: Iterable[nn.Parameter]) -> None:
        """Fix this rank's positions, and publish those that this rank decides.

        `observed` are parameters with gradients, in the order of their last gradients.
        """
        planned = range(len(self._candidates))[::-1]
        order = with_unseen_last(planned, [self._index_of[each] for each in observed])
        self._own_positions = [0] * len(order)
        for position, index in enumerate(order):
            self._own_positions[index] = position
        if self._notes is not None:
            rank = self._notes.rank
            decided = [
                (ranks, [self._own_positions[index] for index in indices])
                for ranks, indices in self._sets().items()
                if ranks[0] == rank
            ]
            self._notes.write(_TOPIC, json.dumps(decided).encode())

    def positions(self) -> list[int]:
        """Return the positions on which the ranks of each parameter agree.

        This rank's own position counts where no other rank has the parameter. Raises
        `PlanMismatchError` where a deciding rank publishes nothing in time.
        """
        agreed = list(self._own_positions)
        if self._notes is None:
            return agreed
        sets = self._sets()
        # Ranks of a set in which all shards are empty sum nothing, and are no peers.
        leaders = {ranks[0] for ranks in sets} & {*self._notes.peers}
        for leader in sorted(leaders):
            note = self._notes.read(_TOPIC, leader, call="wait()")
            for ranks, positions in json.loads(note):
                for index, position in zip(
                    sets.get(tuple(ranks), []), positions, strict=False
                ):
                    agreed[index] = position
        return agreed

    def _sets(self) -> dict[tuple[int, ...], list[int]]:
        """List the candidates of each set of ranks, in registration order."""
        sets: dict[tuple[int, ...], list[int]] = {}
        for index, candidate in enumerate(self._candidates):
            if candidate.ranks:
                sets.setdefault(candidate.ranks, []).append(index)
        return sets
