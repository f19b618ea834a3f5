"""Write the catalogue of features from the planted defects: `make catalogue`.

Each feature of scenarios exists for a defect that shows through it, and no longer shows when
the feature is turned off. The page names the defect, and the test that fails then.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from studies.documents import Document, table
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import FEATURES, OPTIONAL
from tests.quality.planted.graph_words import GROUPS, MODULES, NOT_SHOWN
from tests.quality.planted.modules import MODULE_DEFECTS
from tests.quality.planted.planted import defects_of
from tests.quality.planted.space import SPACE

_COLUMNS: Final = ("feature", "needed for", "mistake", "test that fails without it")


@dataclass(frozen=True)
class Row:
    """The need for one feature."""

    feature: str
    subjects: tuple[type[Any], ...]
    test: str


def rows() -> Iterator[Row]:
    """Yield a row for each feature for which there is a defect."""
    for each in (*SPACE, *defects_of("lifecycle_words"), *MODULE_DEFECTS):
        test = "test_defect_shows_through_its_feature_alone"
        name = f"test_features.py::{test}[{each.feature}]"
        yield Row(each.feature, (each.subject,), name)
    yield from _of_graphs()


def _of_graphs() -> Iterator[Row]:
    features = {str(each) for each in OPTIONAL if each.topic in {"use", "backward"}}
    for feature in sorted(features - {*NOT_SHOWN}):
        showing = [each for each in defects_of(*MODULES) if feature in each.shown_by]
        showing.sort(key=lambda each: len(each.shown_by))
        test = "test_feature_is_needed_for_a_defect"
        if FEATURES[Feature.of(feature)].rare:
            test = "test_defect_shows_through_its_feature"
        name = f"test_graph_defects.py::{test}[{feature}]"
        yield Row(feature, tuple(each.subject for each in showing), name)


def catalogue() -> str:
    """Return the table and its notes."""
    by_feature = {row.feature: row for row in rows()}
    order = map(str, OPTIONAL)
    listed = (_cells(by_feature[each]) for each in order if each in by_feature)
    return "\n".join([*table(_COLUMNS, listed), "", *_notes()])


def _cells(row: Row) -> tuple[str, ...]:
    first, *others = row.subjects
    also = f" ({', '.join(f'`{each.__name__}`' for each in others)})" if others else ""
    says = inspect.getdoc(first) or ""
    mistake = says.partition("\n\n")[0].replace("\n", " ").replace("|", "/")
    return f"`{row.feature}`", f"`{first.__name__}`{also}", mistake, f"`{row.test}`"


def _notes() -> Iterator[str]:
    for group in GROUPS:
        names = ", ".join(f"`{each}`" for each in sorted(group))
        yield f"One group, since no synchronizer tells its features apart: {names}."
    for feature, why in NOT_SHOWN.items():
        yield f"\nWithout a defect: `{feature}`. {why}"
    rare = ((each.value, row.rare) for each, row in FEATURES.items() if row.rare)
    asked = ", ".join(f"`{word}` ({why})" for word, why in rare)
    yield f"\nPlayed on request, and not drawn: {asked}.\n"


PAGE: Final = Document("docs/reference/features.md", catalogue, "features")
