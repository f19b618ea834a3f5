"""Entries of the registry that tests add, with the scenarios that show each of them."""

import functools
import importlib
import pkgutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import FEATURES
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.bugbank.entry import MARK, Entry, Marked, marking

Identity = tuple[str, str]
VALUE = "gradient_equals_reference"
LIVE = "every_rank_finishes"
WAITS = "every_wait_completes"
MATCH = "collectives_match_across_ranks"
ORDER = "launch_order_agrees"
EXCLUSIVE = "bucket_is_exclusive_while_reducing"
READ = "wait_orders_reads_after_reduce"
FILLED = "reduce_reads_after_accumulation"
AGREE = "replicas_agree"
LOCAL = "unreduced_stay_local"
ACCUMULATE = "accumulation_is_local_until_reduced"
ZERO = "zero_grad_clears"
ONCE = "each_bucket_reduced_once_per_step"
UNBIND = "unbind_restores_parameters"
UNREDUCED = (VALUE, "not_reduced")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted(Entry):
    """A synchronizer with a defect, or a right one, and the scenarios that tests play."""

    scenarios: tuple[Scenario, ...] = ()
    elsewhere: tuple[Scenario, ...] = ()
    is_alone: bool = False
    says: tuple[str, ...] = ()
    never: Collection[str] = ()
    shown_by: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset()
    without: Callable[[Scenario], Scenario] | None = field(default=None, hash=False)
    examples: int = 150
    seeds: tuple[int, ...] = (0,)

    @property
    def feature(self) -> str:
        """Return the one feature that shows the defect."""
        (feature,) = self.shown_by
        return feature

    @property
    def drawn(self) -> frozenset[str]:
        """Return those of its features that searches draw."""
        rare = {each for each in self.shown_by if FEATURES[Feature.of(each)].rare}
        return self.shown_by - rare


def plant(
    subject: type[Any], identity: Identity | None, *shown_by: str, **fields: Any
) -> Planted:
    """Describe a defect that some features show, or plain steps; a right one has no identity."""
    violates, *causes = identity or ("",)
    features = f" {', '.join(shown_by)}" if shown_by else ""
    return Planted(
        name=f"{getattr(subject, '__name__', subject)}{features}",
        family=getattr(subject, "__module__", "built_in").rpartition(".")[2],
        subject=subject,
        violates=violates,
        causes=tuple(causes),
        is_wrong=identity is not None,
        shown_by=frozenset(shown_by),
        **fields,
    )


def planted(
    identity: Identity, *shown_by: str, **fields: Any
) -> Callable[[Marked], Marked]:
    """Mark a class as a defect."""
    return marking(lambda subject: plant(subject, identity, *shown_by, **fields))


def right(*scenarios: Scenario, **fields: Any) -> Callable[[Marked], Marked]:
    """Mark a class as one that is right in some scenarios."""
    return marking(lambda subject: plant(subject, None, scenarios=scenarios, **fields))


def built_in(*names: str, scenarios: tuple[Scenario, ...]) -> list[Planted]:
    """List built-in subjects that are right in some scenarios."""
    return [plant(name, None, scenarios=scenarios) for name in names]  # type: ignore[arg-type]


@functools.cache
def planted_in(*families: str) -> tuple[Planted, ...]:
    """List the entries of some modules of this folder, of all if none is named.

    `OTHERS` of a module has entries about classes of other modules.
    """
    found: list[Planted] = []
    for each in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if each.name in families or not families:
            module = importlib.import_module(f"{__package__}.{each.name}")
            found += vars(module).get("OTHERS", ())
            for value in vars(module).values():
                if isinstance(value, type) and value.__module__ == module.__name__:
                    found += vars(value).get(MARK, ())
    return tuple(found)


def defects_of(*families: str) -> tuple[Planted, ...]:
    """List the defects of some modules that features show."""
    return tuple(e for e in planted_in(*families) if e.is_wrong and e.shown_by)


def training(
    num_parameters: int = 1,
    *,
    shape: tuple[int, ...] = (4,),
    ranks: int = 2,
    accumulations: tuple[int, ...] = (1,),
    cap_bytes: int = 1 << 20,
    parameter: Any = None,
    **words: Any,
) -> Scenario:
    """Return steps of replicated parameters; `parameter` has fields of each, `words` of the steps."""
    specs = tuple(
        replace(ParameterSpec(f"p{n}", shape, ("R",)), **(parameter or {}))
        for n in range(num_parameters)
    )
    mesh = words.pop("mesh", MeshSpec((ranks,), ("dp",)))
    return replace(Scenario(mesh, specs, accumulations, cap_bytes), **words)


def each_parameter(
    change: Callable[[ParameterSpec], ParameterSpec],
) -> Callable[[Scenario], Scenario]:
    """Change all parameters of a scenario."""

    def changed(scenario: Scenario) -> Scenario:
        return replace(scenario, parameters=tuple(map(change, scenario.parameters)))

    return changed
