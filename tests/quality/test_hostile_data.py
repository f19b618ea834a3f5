"""Tokens and saved violations that others made up: one line and exit 2, or a legal scenario.

The mutations start from valid ones, so they get far: a wrong number in a list, a deep nest, a
foreign module, a name with control characters.
"""

import copy
import functools
import json
import resource
import sys
import zlib
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from syncverify.errors import UsageError
from syncverify.playing.sim import SimBackend
from syncverify.progress import SilentProgress
from syncverify.scenario import feature_table
from syncverify.scenario.contract import EVERYTHING
from syncverify.scenario.replay_token import _pack, decode
from syncverify.scenario.scenario import Scenario
from syncverify.search.drawing import Drawing
from syncverify.search.saved_violations import SavedViolations, replay_saved
from syncverify.search.violation_database import open_database
from syncverify.subjects.subject import resolve

# A night tries ten thousand tokens.
NUM_EXAMPLES = 300 if settings().max_examples < 1000 else 10_000
WORDS = [word for words in feature_table.WORDS.values() for word in words]
NUMBERS = [0, 1, -1, 2, 3, 7, 64, 10**4, 10**9, 10**12, 10**400, 0.5, float("nan")]
TEXTS = ["", "dp", "p0", "R", "P", "S0", "S9", "_S0", "-", "S", "a:b", "os:system"]
# Modules of the standard library that do something when they are imported.
NOT_IMPORTED = {"this", "antigravity"}
STRANGE = ["\x1b[2J", "\ud800", "\n", "x" * 500, "this:s", "antigravity:geohash"]
VALUES = st.one_of(
    st.sampled_from([*NUMBERS, *TEXTS, *STRANGE, *WORDS, None, True, False]),
    st.sampled_from([[], {}, [[]], [1] * 70, {"module": "this:s"}, {"events": 3}]),
    st.integers(-3, 600),
)


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the paths of all values of nested lists and tables."""
    children = (
        enumerate(node)
        if isinstance(node, list)
        else node.items()
        if isinstance(node, dict)
        else ()
    )
    return [path, *(p for key, child in children for p in places(child, (*path, key)))]


def put(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy with another value at a path."""
    if not path:
        return value
    changed = copy.copy(node)
    changed[path[0]] = put(node[path[0]], path[1:], value)
    return changed


@functools.cache
def valid_scenarios() -> list[Scenario]:
    """Return scenarios from which mutations start, the simplest first."""
    listed: list[Scenario] = []
    drawing = Drawing(EVERYTHING, max_ranks=2, num_examples=30, random_seed=0)
    drawing.for_each(lambda scenario, _: listed.append(scenario), Phase.generate)
    return listed


@st.composite
def hostile_tokens(draw: st.DrawFn) -> str:
    """Generate tokens of up to three mutations; shrinks toward a valid one."""
    scenario = draw(st.sampled_from(valid_scenarios()))
    packed: Any = ["p", "c", _pack(scenario), [0, 1, 2]]
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(places(packed)))
        packed = put(packed, path, draw(VALUES))
    text = json.dumps(packed).encode()
    squeezed = draw(
        st.sampled_from([zlib.compress(text)] * 9 + [zlib.compress(text)[:-2]])
    )
    return "sv2-" + urlsafe_b64encode(squeezed).decode().rstrip("=")


@pytest.fixture(autouse=True, scope="module")
def drawn_before_the_tests() -> None:
    """Draw outside of a test: Hypothesis refuses to draw inside of another drawing."""
    valid_scenarios()


def decoded(token: str) -> tuple[Scenario | None, str]:
    """Return the scenario of a token, or None and the refusal."""
    try:
        return decode(token).scenario, ""
    except UsageError as error:
        return None, str(error)


def memory_bytes() -> int:
    """Return the most memory that this process has used."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.long
@given(hostile_tokens())
@settings(max_examples=NUM_EXAMPLES, suppress_health_check=[HealthCheck.too_slow])
def test_hostile_token_is_refused_in_one_line_or_legal(token: str) -> None:
    used_bytes = memory_bytes()
    for name in NOT_IMPORTED:  # another test of this process may have imported them
        sys.modules.pop(name, None)
    scenario, refusal = decoded(token)
    assert refusal.isprintable()
    if scenario is not None:
        assert Scenario.from_json(scenario.to_json()) == scenario
    assert sys.modules.keys().isdisjoint(NOT_IMPORTED)
    assert memory_bytes() - used_bytes < 2**26


@pytest.mark.long
@given(hostile_tokens())
@settings(max_examples=NUM_EXAMPLES // 10, suppress_health_check=[*HealthCheck])
def test_hostile_entry_of_a_database_blocks_no_run(token: str) -> None:
    """Nothing is raised, and a run drops what it could not play or what holds now."""
    subject = resolve("synchronizer", EVERYTHING)
    saved = SavedViolations(open_database(None, []), subject, "sim")
    saved.database.save(saved._key, token.encode())
    replay = replay_saved(saved, SimBackend(), SilentProgress(), max_ranks=4)
    left = list(saved.database.fetch(saved._key))
    assert not (replay.num_played and left and not replay.result.violations)
    assert "".join(saved.notes).isprintable()
