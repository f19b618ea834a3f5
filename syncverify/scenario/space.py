"""The space of a subject: features of its scenarios, and pairs that cannot occur together.

Coverage is measured against the space: a feature of the space that never occurred is a gap.
A pair that cannot occur is left out, with its reason. A focus is one topic of the space whose
special values most scenarios shall have.
"""

import difflib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from syncverify.errors import UsageError
from syncverify.plain_text import counted
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.contract_meshes import dtypes, features_by_mesh, numbers
from syncverify.scenario.feature_row import EventRow, Feature, Row
from syncverify.scenario.feature_table import (
    FEATURES,
    MANY,
    MAX_ACCUMULATIONS,
    MAX_STEPS,
    NEVER_TOGETHER,
    NUM_REDUCED_AXES,
    OPTIONAL,
    TABLE,
    over,
)
from syncverify.scenario.features import features_of
from syncverify.scenario.layout import TRANSPOSED
from syncverify.scenario.scenario import Scenario

_OF_NO_ROW: Final = Row("")
_ON_MESH: Final = frozenset({"ranks", "mesh", "parameters", "reduction", "placement"})
_OVER_ONE: Final = Feature("reduction", over(1))
_ONE_AXIS: Final = Feature("mesh", "1 axis")
_SEVERAL_AXES: Final = (Feature("mesh", "2 axes"), Feature("mesh", "3 axes"))
_SIZE_ONE: Final = Feature("mesh", "axis of size 1")
# The topic `buckets` of the table; a focus spells it as scenarios do.
BUCKET_CAP: Final = "bucket_cap"
FOCUS_TOPICS: Final = tuple(sorted({BUCKET_CAP, *TABLE} - {"buckets"}))


@dataclass(frozen=True, slots=True)
class Space:
    """The scenarios that may be drawn for a subject."""

    capabilities: Capabilities
    max_ranks: int  # largest usual number of ranks; `size=many ranks` has more

    def values(self) -> dict[str, list[str]]:
        """List the values of each topic that a scenario may have."""
        on_meshes = frozenset(itertools.chain(*self._by_mesh))
        declared: dict[str, Iterable[object]] = {  # beside the features of the table
            **dict.fromkeys(TABLE, ()),
            "ranks": range(1, self.max_ranks + 1),
            "module": self.capabilities.layer_paths,
        }
        left: dict[str, list[str]] = {}
        for topic, others in declared.items():
            values = [each.value for each in FEATURES if each.topic == topic]
            values += map(str, others)
            left[topic] = [
                v for v in values if self._is_left(Feature(topic, v), on_meshes)
            ]
        plain = {"ranks", *(each.topic for each in FEATURES.keys() - OPTIONAL.keys())}
        return {
            topic: found for topic, found in left.items() if found or topic in plain
        }

    @property
    def _by_mesh(self) -> frozenset[frozenset[Feature]]:
        return features_by_mesh(self.capabilities, self.max_ranks)

    def features(self) -> list[Feature]:
        """List the features that a scenario may have."""
        by_topic = self.values().items()
        return [Feature(topic, value) for topic, values in by_topic for value in values]

    def _is_left(self, feature: Feature, on_meshes: frozenset[Feature]) -> bool:
        """Tell whether a contract leaves a feature, and scenarios may have it by chance."""
        own = self.capabilities
        if not own.covers(*feature) or (feature in FEATURES and FEATURES[feature].rare):
            return False
        if feature.topic in _ON_MESH:
            return feature in on_meshes
        row = FEATURES.get(feature, _OF_NO_ROW)
        if row.fewest_micro_batches > self._most_micro_batches():
            return False
        is_late = isinstance(row, EventRow) and row.shows_later
        if is_late and not own.covers("steps", "2"):
            return False
        match feature:
            case ("shape", "empty"):  # an empty gradient fits every cap
                return own.covers("buckets", "cap does not split")
            case ("on_mesh", word):
                is_met = self.max_ranks > 1 and not on_meshes.isdisjoint(_SEVERAL_AXES)
                return is_met and (word == TRANSPOSED or _ONE_AXIS in on_meshes)
            case ("size", "many ranks"):
                return self.max_ranks >= MANY["ranks"] - 1
            case ("size", "unequal axes"):
                return self.max_ranks >= MANY["ranks"] - 1 and self._sums_over_either()
            case ("size", "vast parameter"):
                return self.has_sums
            case ("size", "many buckets"):
                return own.covers("buckets", "cap splits")
            case ("dtype", "several"):
                return len(dtypes(own)) > 1
            case ("accumulations", "varying"):
                counts = numbers("accumulations", MAX_ACCUMULATIONS, own)
                return len(counts) > 1 and numbers("steps", MAX_STEPS, own)[1:] != []
        return True

    @property
    def has_sums(self) -> bool:
        """Tell whether ranks sum a gradient in some scenario."""
        sums = {Feature("reduction", over) for over in NUM_REDUCED_AXES}
        return any(not sums.isdisjoint(features) for features in self._by_mesh)

    def _most_micro_batches(self) -> int:
        """Return the largest number of micro-batches in a step, or a number from `MANY`."""
        if self.capabilities.covers("size", "many micro-batches"):
            return MANY["micro-batches"]
        counts = numbers("accumulations", MAX_ACCUMULATIONS, self.capabilities)
        return max(counts, default=1)

    def _sums_over_either(self) -> bool:
        """Tell whether a gradient may be summed over one of several axes alone."""
        return any(
            _OVER_ONE in each and _ONE_AXIS not in each and _SIZE_ONE not in each
            for each in self._by_mesh
        )

    def pairs(self) -> Iterator[tuple[Feature, Feature]]:
        """Yield the pairs of features, of two topics, that a search seeks in one scenario."""
        features = self.features()
        sought = [f for f in features if not FEATURES.get(f, _OF_NO_ROW).is_alone]
        for one, other in itertools.combinations(sought, 2):
            if one.topic != other.topic and self.why_not(one, other) is None:
                yield one, other

    def why_not(self, one: Feature, other: Feature) -> str | None:
        """Return the reason that no scenario has both features; None if one may."""
        pair = frozenset(map(self._as_built_in, (one, other)))
        reason = NEVER_TOGETHER.get(pair) or self._why_not_on_mesh(dict((one, other)))
        if reason or not {one.topic, other.topic} <= _ON_MESH:
            return reason
        is_on_one = any({one, other} <= features for features in self._by_mesh)
        return None if is_on_one else "no mesh of the contract has both"

    def _as_built_in(self, feature: Feature) -> Feature:
        """Replace a layer of the user's own: it may have what a built-in module may have."""
        topic, value = feature
        is_layer = topic == "module" and value in self.capabilities.layer_paths
        return Feature("module", "mlp") if is_layer else feature

    def require_scenarios(self) -> None:
        """Refuse a contract that leaves no scenario on so many ranks, by `UsageError`."""
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
        for topic in TABLE.values():
            beside = {row.value for row in topic.rows if row.is_beside}
            if topic.is_needed and not {*values[topic.name]} - beside:
                return topic.name
        return None

    def require_focus(self, topic: str) -> None:
        """Refuse an unknown focus, or one without a special value left, by `UsageError`."""
        if topic not in FOCUS_TOPICS:
            near = difflib.get_close_matches(topic, FOCUS_TOPICS, n=1, cutoff=0.4)
            raise UsageError(
                f"unknown focus {topic!r}: "
                + (f"did you mean {near[0]!r}? " if near else "")
                + f"expected one of {', '.join(FOCUS_TOPICS)}"
            )
        focused = _topic_of_focus(topic)
        if not {*self.values().get(focused, [])} - {*TABLE[focused].usual}:
            raise UsageError(
                f"nothing to focus on: the contract covers no special value of {topic!r} on up "
                f"to {counted(self.max_ranks, 'rank')}"
            )

    def _why_not_on_mesh(self, pair: dict[str, str]) -> str | None:
        """Return the reason that a mesh cannot reduce over so many axes, or None."""
        if "reduction" not in pair:
            return None
        num_axes = NUM_REDUCED_AXES.get(pair["reduction"], 0)
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


def is_in_focus(scenario: Scenario, topic: str) -> bool:
    """Tell whether a scenario has a special value of a topic."""
    focused = TABLE[_topic_of_focus(topic)]
    return any(
        feature.topic == focused.name and feature.value not in focused.usual
        for feature in features_of(scenario)
    )


def _topic_of_focus(topic: str) -> str:
    return "buckets" if topic == BUCKET_CAP else topic


def _most_axes(num_ranks: int) -> int:
    """Return the largest number of axes of size >= 2: the count of prime factors."""
    for factor in range(2, num_ranks + 1):
        if num_ranks % factor == 0:
            return 1 + _most_axes(num_ranks // factor)
    return 0
