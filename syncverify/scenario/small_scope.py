"""A small scope: every scenario within a few bounds, one of each symmetry class.

Note [One of each class]
~~~~~~~~~~~~~~~~~~~~~~~~
Scenarios that differ in one of these ways alone are one class, and one of them is listed:

- Names of parameters and of mesh axes.
- Sizes of replicated parameters in the same order: 2 and 3 elements stand for all.
- Bucket caps that fill the same buckets. The cap of a class is its least: some run of
  neighbouring parameters fills it to the byte.

Within the bounds nothing else is left out. The order of parameters is no symmetry, and neither
is that of steps.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from typing_extensions import override

from syncverify.errors import UsageError
from syncverify.scenario.contract import Capabilities
from syncverify.scenario.contract_meshes import (
    AXIS_NAMES,
    dtypes,
    has_mesh,
    has_placements,
    mesh_shapes,
)
from syncverify.scenario.feature_table import TABLE, WORDS
from syncverify.scenario.features import features_of, features_outside
from syncverify.scenario.layout import most_group_bytes, reduce_axes
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import REPLICATE, MeshSpec, ParameterSpec, shard
from syncverify.scenario.words import allowed_words, with_word, words_at

# Topics whose words any plain scenario can take.
WORD_TOPICS: Final = tuple(name for name, topic in TABLE.items() if topic.fits_any)
_MOST: Final = 8  # of each bound: the number of scenarios grows with its powers
_SIZES: Final = (2, 3)
_SMALLEST: Final = (_SIZES[0],)


@dataclass(frozen=True, slots=True)
class SmallScope:
    """The bounds of a small scope, within the contract of a subject: most of each, but for ranks."""

    ranks: int = 2  # in a mesh of one axis, or of two of several ranks each
    # Each is replicated, of 2 or 3 elements; or sharded over some axes; or ordinary; or replicated
    # and frozen. All have the contract's first dtype.
    parameters: int = 3
    buckets: int = 2  # into which a cap cuts the reduced parameters
    micro_batches: int = 2  # of a step
    steps: int = 2
    # Topics of which a scenario has one word beyond plain steps at most: an event of a step that
    # another one follows, a word of one parameter or of the scenario.
    words: tuple[str, ...] = ("event",)

    @override
    def __str__(self) -> str:
        """Spell the scope as `parse` reads it."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["words"] = "+".join(self.words) or "none"
        return ",".join(f"{name}={value}" for name, value in values.items())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the scope of `ranks=2,words=event+launch` and the like, or raise `UsageError`."""
        given = dict[str, Any]()
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            given[name] = _words(value) if name == "words" else _bound(name, value)
        return cls(**given)

    def scenarios(self, capabilities: Capabilities) -> Iterator[Scenario]:
        """Yield each scenario of a contract within the scope; small ones come first."""
        numbers = range(1, self.micro_batches + 1)
        by_steps = range(1, self.steps + 1)
        counts = [c for n in by_steps for c in itertools.product(numbers, repeat=n)]
        for mesh in self._meshes(capabilities):
            for listed in self._parameter_lists(mesh, capabilities):
                caps = cap_classes(mesh, listed, self.buckets)
                for cap, each in itertools.product(caps, counts):
                    scenario = Scenario(mesh, listed, each, cap)
                    if not features_outside(scenario, capabilities):
                        yield scenario
                        yield from self._with_words(scenario, capabilities)

    def _meshes(self, capabilities: Capabilities) -> Iterator[MeshSpec]:
        two_axes = (shape for shape in mesh_shapes(self.ranks, 2) if min(shape) > 1)
        for shape in ((self.ranks,), *two_axes):
            mesh = MeshSpec(shape, AXIS_NAMES[: len(shape)])
            if mesh.num_ranks == self.ranks and has_mesh(capabilities, mesh):
                yield mesh

    def _parameter_lists(
        self, mesh: MeshSpec, capabilities: Capabilities
    ) -> Iterator[tuple[ParameterSpec, ...]]:
        kinds = [*_kinds(mesh, capabilities)]
        for count in range(1, self.parameters + 1):
            for listed in itertools.product(kinds, repeat=count):
                if any(spec.requires_grad for spec in listed) and _is_least(listed):
                    named = enumerate(listed)
                    yield tuple(replace(spec, name=f"p{n}") for n, spec in named)

    def _with_words(
        self, plain: Scenario, capabilities: Capabilities
    ) -> Iterator[Scenario]:
        """Yield scenarios with a word: of each step but the last, of each parameter, or of all."""
        beside = frozenset(map(str, features_of(plain)))
        for topic in self.words:
            allowed = allowed_words(topic, capabilities=capabilities, beside=beside)
            places = range(len(words_at(plain, topic)) - (topic == "event"))
            for word in sorted(allowed, key=[*WORDS[topic]].index):
                for place in places:
                    yield with_word(plain, topic, word, [place])


def cap_classes(
    mesh: MeshSpec, parameters: Sequence[ParameterSpec], most_buckets: int
) -> list[int]:
    """List the least bucket cap of each class in bytes, the largest first.

    Caps are left out that cut the reduced parameters into more buckets than wanted, in the
    order of registration or in the reverse one, as backward goes.
    """
    reduced = [spec for spec in parameters if reduce_axes(mesh, spec)]
    sizes = [most_group_bytes(mesh, [spec]) for spec in reduced if spec.requires_grad]
    if not sizes:
        return [max(1, most_group_bytes(mesh, parameters))]
    runs = itertools.combinations(range(len(sizes) + 1), 2)
    caps = {sum(sizes[first:end]) for first, end in runs}
    caps.add(max(1, min(sizes) - 1))  # no parameter fits
    return [
        cap
        for cap in sorted(caps, reverse=True)
        if max(_num_buckets(sizes, cap), _num_buckets(sizes[::-1], cap)) <= most_buckets
    ]


def _num_buckets(sizes: Iterable[int], cap: int) -> int:
    """Count the buckets of parameters that fill one bucket after the other."""
    count, filled = 0, cap
    for size in sizes:
        if filled + size > cap:
            count, filled = count + 1, 0
        filled += size
    return count


def _kinds(mesh: MeshSpec, capabilities: Capabilities) -> Iterator[ParameterSpec]:
    """Yield the parameters of a scope, without a name; the plainest comes first."""
    dtype, grad_dtype = dtypes(capabilities)[0]
    replicated, *sharded = itertools.product(
        (REPLICATE, shard(0)), repeat=len(mesh.shape)
    )
    may_be_uneven = capabilities.covers("parameters", "uneven or empty shard")
    cut = _SIZES[1] if may_be_uneven else mesh.num_ranks
    spec = ParameterSpec("", _SMALLEST, replicated, dtype, grad_dtype)
    kinds = [
        spec,
        replace(spec, global_shape=_SIZES[1:]),
        *(replace(spec, global_shape=(cut,), placements=each) for each in sharded),
        replace(spec, placements=None),
        replace(spec, requires_grad=False),
    ]
    yield from (e for e in kinds if has_placements(capabilities, mesh, e.placements))


def _is_least(listed: Iterable[ParameterSpec]) -> bool:
    """Tell whether no smaller sizes in the same order stand for those of the parameters."""
    replicated = [each for each in listed if {*(each.placements or ())} == {REPLICATE}]
    return {each.global_shape for each in replicated} != {_SIZES[1:]}


def _bound(name: str, value: str) -> int:
    names = [each.name for each in fields(SmallScope)]
    if name not in names:
        raise UsageError(
            f"unknown bound {name!r} of a scope: expected {', '.join(names)}"
        )
    if not (value.isdecimal() and 1 <= int(value) <= _MOST):
        raise UsageError(f"expected {name} of a scope from 1 to {_MOST}, got {value!r}")
    return int(value)


def _words(text: str) -> tuple[str, ...]:
    topics = () if text == "none" else tuple(dict.fromkeys(text.split("+")))
    for topic in topics:
        if topic not in WORD_TOPICS:
            raise UsageError(
                f"unknown words {topic!r} of a scope: expected none, or some of "
                f"{'+'.join(WORD_TOPICS)}"
            )
    return topics
