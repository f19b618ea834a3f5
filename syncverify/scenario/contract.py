"""The contract of a subject: the scenarios that it covers, and its promises."""

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, Self

from syncverify.errors import UsageError
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import (
    ALL_OPTIONAL_TOPICS,
    FEATURES,
    OPTIONAL,
    TABLE_VERSION,
    WORDS,
    is_plain,
)

# Fields with names of features.
FEATURE_FIELDS: Final = ("features", "right", "refused", "outside")
# Fields that take one of a few values.
CHOICES: Final[Mapping[str, tuple[object, ...]]] = {
    "reduction": ("sum", "mean"),
    "tensors": ("dtensor", "local"),
    "gradients": ("all ranks", "owner"),
    "device": ("cpu", "cuda"),
    "divide_factor": (0, 2, 4, 8, 16),
    "wire_dtype": ("", "bfloat16"),
}
# Values of plain training steps that a value of a field leaves out.
_LEFT_OUT_BY_FIELD: Final = {
    ("tensors", "local"): {
        *("parameters=sharded", "parameters=uneven or empty shard"),
        *("parameters=ordinary", "placement", "on_mesh"),
    },
    ("varying_accumulations", False): {"accumulations=varying"},
    ("scalars", False): {"parameters=scalar"},
    ("wire_dtype", "bfloat16"): {
        *("dtype=float16", "dtype=float64", "dtype=own gradient dtype", "module"),
        *("gradient=inf", "gradient=nan", "gradient=zero"),
    },
}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The contract of a subject: plain training steps, and the features that it names.

    Features are spelled `topic=value`, or `topic` for all of a topic. A feature that no field names is
    beyond the contract: it is observed and reported, and decides no verdict without `fail_on_wrong`.

    Attributes:
        table_version: Version of the feature table whose values the contract means. Values that
            later versions have added are beyond the contract, unless a field names them. Today's
            version in code; in a contract file without the key, the first one.
        reduction: Gradients are the `sum` or the `mean` over the contributing ranks.
        tensors: `dtensor`; or `local` for a subject that knows ordinary tensors only and
            reduces each of them over all ranks.
        varying_accumulations: The number of micro-batches may change between steps.
        needs_data: Collectives have to move data, which those of `fake` do not.
        overlaps_backward: The subject promises to reduce while backward still runs. A
            subject without `Capabilities` says so by an attribute of this name.
        scalars: Parameters may have no dims.
        takes_cuda_streams: The subject takes streams from `torch.cuda` by name. Their order
            is judged on `sim` and `streams`; on `gloo` and `fake` all work runs at once.
        needs_nccl: The subject relies on NCCL, which runs the collectives of one
            communicator one after the other; gloo runs them side by side.
        needs_processes: The subject keeps state for a whole process, and so cannot run
            where ranks are threads (`sim`, `fake`).
        reduces_each_micro_batch: The subject reduces in every micro-batch, and
            accumulates reduced gradients.
        keeps_bucket_cap: Gradients that share a bucket fit the cap together, which counts bytes
            of one rank.
        owns_parameters: The subject contains the optimizer, or values of the parameters of its
            own (ZeRO), so nobody else may update parameters between steps.
        gradients: Ranks that hold the right reduced gradient of a parameter after `wait()`:
            `all ranks` that replicate it, or one `owner` among them (`dist.reduce`, ZeRO-1).
            A subject with a method `owner(parameter)` names the owner.
        divide_factor: Number by which the subject divides the sum of each gradient that has a
            replicated axis, also one of a single rank; 0 for no such number. Ordinary tensors
            and gradients that are sharded on all axes are not divided. A power of two:
            others round. `reduction` is `sum` beside it.
        wire_dtype: Dtype in which ranks sum the gradients of a micro-batch or of a step, if it is
            narrower than theirs; "" for their own. Sums over micro-batches have the dtype of
            the gradient.
        device: Device of tensors that the subject sees on `sim` and `streams`: `cpu`, or `cuda`
            for a subject with branches for GPUs. With `cuda` it does not run on `gloo` and
            `fake`, and is judged by NCCL's rules alone, as with `needs_nccl`.
        layers: Modules of the user's own that scenarios train, each as `module:attribute`,
            which is imported. The attribute's name is the layer's word in scenarios.
        fail_on_wrong: A feature beyond the contract that is wrong without an error fails
            the run.
        features: Features that the subject promises, each with the promise of the
            table: the right gradient, or the right gradient or a clear error.
        right: Features that have to be right.
        refused: Features that the subject may refuse by a clear error; and values of plain
            steps, where its error may come in any scenario that has one of them.
        outside: Features that the subject does not promise, though another field names
            their topic; and values of plain steps, of which no scenario that is drawn
            has one. Example: `dtype=float16`.
    """

    table_version: int = TABLE_VERSION
    reduction: Literal["sum", "mean"] = "sum"
    tensors: Literal["dtensor", "local"] = "dtensor"
    varying_accumulations: bool = False
    needs_data: bool = False
    overlaps_backward: bool = False
    scalars: bool = True
    takes_cuda_streams: bool = False
    needs_nccl: bool = False
    needs_processes: bool = False
    reduces_each_micro_batch: bool = False
    keeps_bucket_cap: bool = False
    owns_parameters: bool = False
    gradients: Literal["all ranks", "owner"] = "all ranks"
    divide_factor: int = 0
    wire_dtype: Literal["", "bfloat16"] = ""
    device: Literal["cpu", "cuda"] = "cpu"
    layers: tuple[str, ...] = ()
    fail_on_wrong: bool = False
    features: frozenset[str] = frozenset()
    right: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    outside: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Make a set of each collection of features; refuse other values by `UsageError`."""
        for field, words in CHOICES.items():
            if getattr(self, field) not in words:
                _refuse(field, " or ".join(map(repr, words)), getattr(self, field))
        if self.table_version not in range(1, TABLE_VERSION + 1):
            known = f"1 to {TABLE_VERSION}, the versions that this syncverify knows"
            _refuse("table_version", known, self.table_version)
        if self.divide_factor and self.reduction != "sum":
            _refuse("reduction", "'sum' beside a divide_factor", self.reduction)
        object.__setattr__(self, "layers", _checked_layers(self.layers))
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(each.default, bool) and not isinstance(value, bool):
                _refuse(each.name, "True or False", value)
        for field in FEATURE_FIELDS:
            object.__setattr__(self, field, _checked_names(field, getattr(self, field)))

    @property
    def asks_plain_steps_alone(self) -> bool:
        """Tell whether the contract names no feature beyond plain training steps."""
        refused = self.refused - _plain_names(self.refused)
        return not (self.features or self.right or refused)

    @property
    def is_for_nccl(self) -> bool:
        """Tell whether the subject runs on NCCL alone, so that gloo's rules do not count."""
        return self.needs_nccl or self.device == "cuda"

    @property
    def layer_paths(self) -> dict[str, str]:
        """Return the path of each layer, by its word."""
        return {path.rpartition(":")[2]: path for path in self.layers}

    def plain(self) -> Self:
        """Return the contract without features beyond plain training steps."""
        plain: dict[str, Any] = {
            name: _plain_names(getattr(self, name)) for name in FEATURE_FIELDS
        }
        return replace(self, **plain)

    def observing(self, features: frozenset[str]) -> Self:
        """Return the contract of plain steps and some features, which may be refused."""
        plain = self.plain()
        return replace(plain, refused=plain.refused | features, layers=())

    def covers(self, topic: str, value: str) -> bool:
        """Tell whether the contract covers a feature, or a value of plain steps."""
        name = f"{topic}={value}"
        # A topic stands for its features beyond plain steps.
        if (topic, value) not in OPTIONAL:
            if topic == "module" and value not in self.layer_paths:
                return False
            return name not in _left_out(self)
        names, asked = (topic, name), self.features | self.right | self.refused
        return not asked.isdisjoint(names) and _left_out(self).isdisjoint(names)

    @property
    def newer_features(self) -> list[Feature]:
        """List the features that the contract would cover if it meant today's values."""
        today = replace(self, table_version=TABLE_VERSION)
        return [f for f in FEATURES if today.covers(*f) and not self.covers(*f)]

    def may_refuse(self, topic: str, value: str) -> bool:
        """Tell whether a clear error is as good as the right gradient of a feature."""
        for name in (f"{topic}={value}", topic):
            if name in self.right:
                return False
            if name in self.refused:
                return True
        return OPTIONAL.get(Feature(topic, value)) == "right_or_error"

    def in_words(self) -> str:
        """Name the contract by reduction, tensors and number of features; "" for everything."""
        num_asked = sum(self.covers(*feature) for feature in OPTIONAL)
        if num_asked == len(OPTIONAL):
            return ""
        plain = "the plain contract"
        if (self.reduction, self.tensors) != ("sum", "dtensor"):
            tensors = "ordinary tensors" if self.tensors == "local" else "DTensors"
            plain += f" for {self.reduction}s of {tensors}"
        beyond = f" and {num_asked} of {len(OPTIONAL)} features beyond it"
        return plain + beyond if num_asked else plain


def _plain_names(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if is_plain(Feature.of(name)))


def _refuse(field: str, expected: str, got: object) -> NoReturn:
    raise UsageError(f"expected `{field}` of a contract as {expected}, got {got!r}")


def _checked_names(field: str, names: object) -> frozenset[str]:
    """Return the names of features in a field; refuse what is no collection of text."""
    if isinstance(names, str):
        raise UsageError(
            f"expected `{field}` of a contract as a set of features, got {names!r}; "
            f"try {field}={{{names!r}}}"
        )
    if not isinstance(names, Collection) or not all(
        isinstance(name, str) for name in names
    ):
        _refuse(field, "a set of features, such as 'event=tail'", names)
    return frozenset(names)


def _checked_layers(listed: object) -> tuple[str, ...]:
    """Return the paths of layers; refuse one that names no attribute, and a word with two meanings."""
    if isinstance(listed, str) or not isinstance(listed, Collection):
        _refuse("layers", "a list of 'module:attribute'", listed)
    paths, taken = tuple(listed), {*WORDS["module"]}
    for path in paths:
        module, colon, word = (
            path.partition(":") if isinstance(path, str) else ("",) * 3
        )
        if not (module and colon and word.isidentifier()) or word in taken:
            raise UsageError(
                f"expected each of `layers` of a contract as 'module:attribute', with a name "
                f"of its own besides {', '.join(sorted(taken))}; got {path!r}"
                + (" twice" if paths.count(path) > 1 else "")
            )
        taken.add(word)
    return paths


@functools.cache
def _left_out(capabilities: Capabilities) -> frozenset[str]:
    """List the features that a contract leaves out, by `outside` or by another field."""
    by_fields = (
        features
        for (field, value), features in _LEFT_OUT_BY_FIELD.items()
        if getattr(capabilities, field) == value
    )
    asked = capabilities.features | capabilities.right | capabilities.refused
    version, rows = capabilities.table_version, FEATURES.items()
    newer = {str(each) for each, row in rows if row.since > version}
    left_out = capabilities.outside.union(*by_fields, newer - asked)
    return left_out.union(
        str(each)
        for each in FEATURES
        if not left_out.isdisjoint(_smaller_numbers(each))
    )


def _smaller_numbers(feature: Feature) -> Iterator[str]:
    """Yield the smaller numbers of a feature's kind, the next smaller one first."""
    while feature in FEATURES and (name := FEATURES[feature].gone_with):
        yield name
        feature = Feature.of(name)


ContractChoice = str | Path | Capabilities  # a name, the path of a file, or itself

PLAIN_CONTRACT = Capabilities()
EVERYTHING = Capabilities(features=ALL_OPTIONAL_TOPICS)
