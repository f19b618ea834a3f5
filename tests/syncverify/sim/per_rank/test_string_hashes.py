"""Each simulated rank has hashes of strings of its own, where a subject asks for them."""

from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.sim.per_rank.string_hashes import _hash, own_hashes
from syncverify.sim.turns.scheduler import enter_rank
from tests.programs import identities
from tests.quality.planted import hashes

NAMES = [f"p{n}" for n in range(20)]
SCENARIO = Scenario(
    MeshSpec((2,), ("dp",)),
    tuple(ParameterSpec(name, (3,), ("R",)) for name in NAMES[:6]),
    (1,),
    2**20,
)


def test_an_order_by_hashes_of_strings_is_found() -> None:
    mismatch = ("collectives_match_across_ranks", "bucket_mismatch")
    assert mismatch in identities(hashes.ReducesByHash, SCENARIO)
    assert identities(hashes.ReducesByName, SCENARIO) == set()


def orders() -> list[list[str]]:
    """Return the order of names by hash that each of two ranks sees."""
    found = []
    for rank in (0, 1):
        enter_rank(rank)
        found.append(sorted(NAMES, key=lambda name: _hash((1, name))))
    enter_rank(None)
    return found


def test_ranks_differ_in_strings_and_agree_with_themselves() -> None:
    first, second = orders()
    assert first != second
    assert orders() == [first, second]


def test_a_hash_without_a_string_is_the_usual_one() -> None:
    enter_rank(1)
    seen = [
        (_hash(each), hash(each)) for each in (7, 1.5, None, (1, 2), frozenset({3}))
    ]
    enter_rank(None)
    assert all(own == usual for own, usual in seen)


def test_nothing_stays_in_the_module_of_a_subject() -> None:
    with own_hashes(hashes.ReducesByHash):
        assert vars(hashes)["hash"] is _hash
        assert _hash("outside of ranks") == hash("outside of ranks")
    assert "hash" not in vars(hashes)
