"""The space of a subject: features of its scenarios, and pairs that cannot occur together.

Coverage is measured against the space: a feature of the space that never occurred is a gap.
A pair that cannot occur is left out, with its reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from syncverify.errors import UsageError
from syncverify.plain_text import counted
from syncverify.scenario import vocabulary
from syncverify.scenario.choices import features_by_mesh, features_left
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.feature_table import OPTIONAL_FEATURES
from syncverify.scenario.features import NEVER_TOGETHER
from syncverify.scenario.plain_features import PLAIN_VALUES, Feature

_ON_MESH: Final = frozenset({"ranks", "mesh", "parameters", "reduction", "placement"})
# Values of plain steps without which there is no scenario: some value but the listed ones.
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "ranks": (),
    "dtype": ("several",),
    "accumulations": ("varying",),
    "steps": (),
    "buckets": ("2 groups", "3 groups"),
}
_MODULES = tuple(word for word in vocabulary.MODULES if word != vocabulary.PLAIN)
_SHARDED_KINDS = ("sharded", "uneven or empty shard")
# Pairs that cannot occur in a plain training step or in a module, with the reason. Pairs
# that depend on the number of ranks are computed in `_why_not_on_mesh`.
BY_CONSTRUCTION: Final[Mapping[frozenset[str], str]] = {
    frozenset(("steps=1", "accumulations=varying")): "one step has one count",
    frozenset(("mesh=1 axis", "reduction=over 2 axes")): "it has one axis",
    frozenset(("mesh=1 axis", "reduction=over 3 axes")): "it has one axis",
    frozenset(("mesh=2 axes", "reduction=over 3 axes")): "it has two axes",
    frozenset(("mesh=axis of size 1", "reduction=over 3 axes")): (
        "a reduction over an axis needs two ranks on it, and meshes have up to three axes"
    ),
    frozenset(
        ("gradient=inf", "gradient=nan")
    ): "one parameter of a scenario overflows",
    frozenset(("ranks=1", "parameters=uneven or empty shard")): "one rank holds all",
    **{
        frozenset((f"module={module}", f"parameters={kind}")): (
            "a module has its own parameters, with dims, on the mesh"
        )
        for module in _MODULES
        for kind in ("ordinary", "scalar")
    },
    **{
        frozenset((f"module={module}", f"parameters={kind}")): "only experts are spread"
        for module in _MODULES
        for kind in _SHARDED_KINDS
        if module != "moe"
    },
    **{
        frozenset((f"module={module}", value)): "a module has its own parameters"
        for module in _MODULES
        for value in (
            *(f"size={name}" for name in PLAIN_VALUES["size"]),
            *(f"gradient={name}" for name in PLAIN_VALUES["gradient"]),
            "buckets=3 groups",
        )
    },
    **{
        frozenset((f"steps={number}", "size=many steps")): "a number is few or many"
        for number in PLAIN_VALUES["steps"]
    },
    **{
        frozenset((f"module={module}", "dtype=several")): "a module has one dtype"
        for module in _MODULES
    },
    **{
        frozenset((f"module={module}", "dtype=float16")): (
            "modules are drawn in bfloat16, which rounds more and overflows less"
        )
        for module in _MODULES
    },
}


@dataclass(frozen=True, slots=True)
class Space:
    """The scenarios that may be drawn for a subject.

    Attributes:
        capabilities: Contract of the subject.
        max_ranks: Largest number of ranks of a scenario.
    """

    capabilities: Capabilities
    max_ranks: int

    def values(self) -> dict[str, list[str]]:
        """List the values of each topic that a scenario may have."""
        left = features_left(self.capabilities, self.max_ranks)
        ranks = map(str, range(1, self.max_ranks + 1))
        listed = {
            topic: [name for name in names if (topic, name) in left]
            for topic, names in {"ranks": ranks, **PLAIN_VALUES}.items()
        }
        for topic, names in OPTIONAL_FEATURES.items():
            for name in values_in_contract(topic, names, self.capabilities):
                if (topic, name) in left or self._is_possible(topic, name):
                    listed.setdefault(topic, []).append(name)
        for word in self.capabilities.layer_paths:
            listed.setdefault("module", []).append(word)
        return listed

    def pairs(self) -> Iterator[tuple[Feature, Feature]]:
        """Yield the pairs of features, of two topics, that one scenario may have."""
        features = [(t, name) for t, names in self.values().items() for name in names]
        for one, other in itertools.combinations(features, 2):
            if one[0] != other[0] and self.why_not(one, other) is None:
                yield one, other

    def why_not(self, one: Feature, other: Feature) -> str | None:
        """Return the reason that no scenario has both features; None if one may."""
        pair = frozenset(map(self._spelled, (one, other)))
        reason = BY_CONSTRUCTION.get(pair) or NEVER_TOGETHER.get(pair)
        reason = reason or self._why_not_on_mesh(dict((one, other)))
        if reason is None and {one[0], other[0]} <= _ON_MESH:
            by_mesh = features_by_mesh(self.capabilities, self.max_ranks)
            if not any({one, other} <= features for features in by_mesh):
                return "no mesh of the contract has both"
        return reason

    def _spelled(self, feature: Feature) -> str:
        """Spell a feature; a layer of the user's own may have what a built-in module may have."""
        is_layer = (
            feature[0] == "module" and feature[1] in self.capabilities.layer_paths
        )
        return "module=mlp" if is_layer else "=".join(feature)

    def _is_possible(self, topic: str, name: str) -> bool:
        """Tell whether plain values that a contract leaves allow an optional feature."""
        if (topic, name) == ("shape", "empty"):  # an empty gradient fits every cap
            return self.capabilities.covers("buckets", "cap does not split")
        return topic not in _ON_MESH

    def require_scenarios(self) -> None:
        """Refuse a contract that leaves no scenario.

        Raises:
            UsageError: A contract leaves out each value of a topic, on so many ranks.
        """
        topic = self.missing_topic()
        if topic is not None:
            raise UsageError(
                f"expected a contract that leaves some {topic!r} on up to "
                f"{counted(self.max_ranks, 'rank')}; its capabilities leave out each one: take "
                f"a value of {topic!r} out of `outside`"
            )

    def missing_topic(self) -> str | None:
        """Return a topic without which there is no scenario; None if there are scenarios."""
        values = self.values()
        for topic, besides in _NEEDED.items():
            if not set(values.get(topic, ())) - set(besides):
                return topic
        return None

    def _why_not_on_mesh(self, pair: dict[str, str]) -> str | None:
        """Return the reason that a mesh cannot reduce over so many axes, or None."""
        reduction = pair.get("reduction")
        if reduction is None:
            return None
        num_axes = int(reduction.split()[1]) if reduction != "none" else 0
        if "ranks" in pair:
            num_ranks = int(pair["ranks"])
            if _most_axes(num_ranks) < num_axes:
                axes = "an axis" if num_axes == 1 else f"{num_axes} axes"
                return f"a world of {counted(num_ranks, 'rank')} lacks {axes} of two or more"
            if num_axes == 0 and num_ranks > 1 and self.capabilities.tensors == "local":
                return "every parameter is replicated over all ranks"
        no_third_axis = not self.capabilities.covers("mesh", "3 axes")
        if num_axes == 2 and no_third_axis and pair.get("mesh") == "axis of size 1":
            return "a reduction over two axes needs two ranks on each"
        return None


def values_in_contract(
    topic: str, names: Iterable[str], capabilities: Capabilities
) -> list[str]:
    """List the values of a topic that a contract covers, without the slow ones of `RARE`."""
    return [
        name
        for name in names
        if capabilities.covers(topic, name) and name not in vocabulary.RARE
    ]


def _most_axes(num_ranks: int) -> int:
    """Return the largest number of axes of size >= 2: the count of prime factors."""
    for factor in range(2, num_ranks + 1):
        if num_ranks % factor == 0:
            return 1 + _most_axes(num_ranks // factor)
    return 0
