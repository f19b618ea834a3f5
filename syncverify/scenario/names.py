"""Names of features in a contract: refuse unknown names, and names without effect."""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Final

from syncverify.errors import UsageError
from syncverify.scenario.contract import FEATURE_FIELDS, Capabilities
from syncverify.scenario.feature_row import Feature
from syncverify.scenario.feature_table import (
    ALL_OPTIONAL_TOPICS,
    FEATURES,
    OPTIONAL,
    is_plain,
)
from syncverify.scenario.space import Space

# A contract has to leave scenarios in a world of this many ranks. A search asks again, for
# its own largest world.
_MAX_RANKS: Final = 8
_OPTIONAL: Final = ALL_OPTIONAL_TOPICS.union(map(str, OPTIONAL))
# Fields that may name values of plain steps too.
_OF_PLAIN_STEPS: Final = ("refused", "outside")
_PLAIN: Final = frozenset(map(str, FEATURES)) - _OPTIONAL


def check_names(capabilities: Capabilities, *, subject: str) -> None:
    """Refuse an unknown or idle name, and a contract without a scenario, by `UsageError`."""
    if mistake := next(_mistakes(capabilities), ""):
        raise UsageError(f"contract of subject {subject!r}: {mistake}")
    if any(_is_plain_value(name) for name in capabilities.outside):
        Space(capabilities, _MAX_RANKS).require_scenarios()


def _mistakes(capabilities: Capabilities) -> Iterator[str]:
    for field in FEATURE_FIELDS:
        for name in sorted(getattr(capabilities, field)):
            yield from _unknown(name, field)
    for name in sorted(capabilities.right & capabilities.refused):
        yield f"{name!r} is in `right` and in `refused`: take it out of one of them"
    asked = capabilities.features | capabilities.right | capabilities.refused
    for name in sorted(capabilities.outside):
        if not _is_plain_value(name) and not _has_effect(name, asked):
            yield (
                f"{name!r} in `outside` has no effect: features beyond plain training "
                "steps are outside unless `features`, `right` or `refused` names them; "
                "take it out"
            )


def _unknown(name: str, field: str) -> Iterator[str]:
    takes_plain = field in _OF_PLAIN_STEPS
    if name in _OPTIONAL or (takes_plain and _is_plain_value(name)):
        return
    if _is_plain_value(name):
        yield (
            f"{name!r} in `{field}` has no effect: it is a value of plain training steps, "
            "which every contract promises unless `outside` or `refused` names them; take "
            "it out"
        )
    elif Feature.of(name).value == "sparse":
        yield (
            f"{name!r} in `{field}`: no scenario has sparse gradients; take it out, and test "
            "with programs of your own what the synchronizer does with them"
        )
    else:
        yield (
            f"unknown feature {name!r} in `{field}`, expected `topic` or `topic=value`"
            f"{_nearest(name, _OPTIONAL | _PLAIN if takes_plain else _OPTIONAL)}"
        )


def _nearest(name: str, known: Iterable[str]) -> str:
    topic = Feature.of(name).topic
    if topic == "ranks":
        return "; a number of ranks is at least 1, such as 'ranks=4'"
    of_topic = [each for each in known if Feature.of(each).topic == topic]
    close = difflib.get_close_matches(name, sorted(of_topic or known), n=1, cutoff=0.5)
    return f"; the nearest is {close[0]!r}" if close else ""


def _is_plain_value(name: str) -> bool:
    feature = Feature.of(name)
    if feature.topic == "ranks":
        return re.fullmatch(r"[1-9][0-9]{0,5}", feature.value) is not None
    return is_plain(feature)


def _has_effect(name: str, asked: frozenset[str]) -> bool:
    """Tell whether a contract would promise a feature if `outside` did not name it."""
    topic = Feature.of(name).topic
    if name != topic:
        return not asked.isdisjoint((topic, name))
    return any(Feature.of(each).topic == topic for each in asked)
