"""One thread a process, and the same examples on every run."""

import gc
import importlib
import os
import signal
import zlib
from collections.abc import Generator, Iterator

import pytest
from hypothesis import Phase, settings
from xdist import is_xdist_controller

from syncverify.processes import owner_link

# Torch, and what imports it, is imported below: the process that hands out the tests of
# pytest-xdist plays none, and the others start when it has read this file.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
# New examples every night: pytest --hypothesis-profile=nightly
settings.register_profile(
    "nightly", deadline=None, derandomize=False, print_blob=True, max_examples=1000
)
# One test says how to use it: tests/syncverify/judge/ordering/test_reachability.py.
settings.register_profile(
    "ten-thousand",
    deadline=None,
    derandomize=True,
    print_blob=True,
    max_examples=10_000,
)
# Played for every mutant of the harness, where any example will do: docs/how-we-know.md.
settings.register_profile(
    "mutation",
    deadline=None,
    derandomize=True,
    max_examples=15,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("ci")

# A thousand scenarios take minutes, and more where others use the machine.
NIGHTLY_TIMEOUT_SECONDS = 3600
FEW_SHRINK_RUNS = 8


@pytest.fixture(autouse=True)
def _owners_as_before() -> Iterator[None]:
    """Forget who hears of the end of this process: a job of torchrun waits for its peers then."""
    owners = [*owner_link._owners]
    yield
    owner_link._owners[:] = owners


@pytest.fixture(scope="session", autouse=True)
def _signals_arrive() -> None:
    """Let signals reach this process and those that tests start.

    A shell starts a job in the background with SIGINT ignored, and so do some CI systems;
    `nohup` ignores SIGHUP.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
        if signal.getsignal(number) is signal.SIG_IGN:
            is_interrupt = number == signal.SIGINT
            handler = signal.default_int_handler if is_interrupt else signal.SIG_DFL
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _no_fixes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for no fix of a violation: that takes a second each, and has other tests.

    Nor for the lines that decide: they are looked for where there is no fix, in a third of
    the time of a search.
    """
    if "with_fixes" not in request.fixturenames:
        diagnosis = "syncverify.explain.repair.diagnosis"
        monkeypatch.setattr(f"{diagnosis}.find_fix", lambda *_: None)
        monkeypatch.setattr(f"{diagnosis}.deciding_lines", lambda *_: ())


@pytest.fixture
def with_fixes() -> None:
    """Look for fixes of violations, and for the lines that decide where there is none."""


@pytest.fixture
def hardly_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrink violations in a few runs: for tests that do not look at scenarios."""
    shrinking = "syncverify.search.shrinking"
    monkeypatch.setattr(f"{shrinking}._MAX_SHRINK_RUNS", FEW_SHRINK_RUNS)
    monkeypatch.setattr(f"{shrinking}._MAX_SIMPLER_RUNS", FEW_SHRINK_RUNS)


def takes_long(item: pytest.Item) -> bool:
    """Tell whether a test is marked slow, or one of many examples."""
    is_drawn = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return is_drawn or item.get_closest_marker("slow") is not None


def seconds_of(item: pytest.Item) -> float:
    """Return about how long a test takes: `long` may say it."""
    long = item.get_closest_marker("long")
    if long:
        return float(long.args[0]) if long.args else 2.0
    return float(item.get_closest_marker("slow") is not None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that splits the tests marked `long`."""
    parser.addoption(
        "--tenth",
        metavar="TEXT",
        help="of the tests marked `long`, play the tenth that TEXT chooses, such as a commit",
    )


def is_in_tenth(test: str, chosen_by: str) -> bool:
    """Tell whether a test is in the tenth of all tests that a text chooses."""
    return zlib.crc32(f"{chosen_by} {test}".encode()) % 10 == 0


# First, because `-m` selects in the same hook: a test marked `long` is also `slow`.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave tests marked `nightly` to the nights and `--tenth` to other jobs; order the rest.

    Under pytest-xdist the longest tests come first, under the profile `mutation` last.
    """
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.slow)
    if settings.get_current_profile_name() == "mutation":  # most mutants die early
        items.sort(key=takes_long)
    elif hasattr(config, "workerinput"):  # the last test of pytest-xdist is a short one
        items.sort(key=seconds_of, reverse=True)
    if settings.get_profile("nightly").max_examples <= settings().max_examples:
        for item in items:
            item.add_marker(pytest.mark.timeout(NIGHTLY_TIMEOUT_SECONDS))
        return
    tenth = config.getoption("--tenth")
    later = {
        item
        for item in items
        if item.get_closest_marker("nightly")
        or (
            tenth
            and not is_in_tenth(item.nodeid, tenth)
            and item.get_closest_marker("long")
        )
    }
    if later:
        config.hook.pytest_deselected(items=[*later])
        items[:] = [item for item in items if item not in later]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Look for no garbage while thousands of tests are imported: they leave none."""
    gc.disable()
    if not is_xdist_controller(session):
        # `OMP_NUM_THREADS` is for the processes that tests start.
        importlib.import_module("torch").set_num_threads(1)


def pytest_collection_finish() -> None:
    """Let no collection look at the tests, nor at the modules of torch.

    Each search ends with a full collection, which would take a third of its time here.
    """
    gc.freeze()
    gc.enable()


def num_full_collections() -> int:
    """Return how often the collector has looked at all objects but frozen ones."""
    return gc.get_stats()[-1]["collections"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Let no collection look at what an earlier test has left: modules, caches, strategies.

    Each search ends with a full collection, of which there are several in such a test.
    """
    before = num_full_collections()
    result = yield
    if num_full_collections() > before:
        gc.collect()
        gc.freeze()
    return result
