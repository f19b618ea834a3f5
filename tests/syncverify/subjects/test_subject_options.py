"""Options behind the name of a built-in subject: found, kept in the name, or refused."""

import pytest

from syncverify.errors import SubjectError
from syncverify.judge.properties import check
from syncverify.playing.messages import pack_subject, unpack_subject
from syncverify.playing.sim import SimBackend
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.specs import MeshSpec, ParameterSpec
from syncverify.subjects.fsdp2 import OPTIONS, FullyShardedSubject
from syncverify.subjects.subject import resolve
from syncverify.trace.records import CollectiveWait

NAME = "fsdp2:gradient_divide_factor=2,reshard_after_forward=false"
CHOSEN = {"gradient_divide_factor": 2.0, "reshard_after_forward": False}


def test_a_name_with_options_is_a_subject_of_its_own() -> None:
    found = resolve(NAME)
    assert (found.name, found.key) == (NAME, NAME)
    assert issubclass(found.factory, FullyShardedSubject)  # type: ignore[arg-type]
    assert found.factory.options == CHOSEN  # type: ignore[attr-defined]
    assert FullyShardedSubject.options == {}
    assert resolve(NAME) == found != resolve("fsdp2")


def test_worker_processes_get_the_options() -> None:
    there = unpack_subject(pack_subject(resolve(NAME)))
    assert there.factory.options == CHOSEN  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("fsdp2", False),
        ("hsdp:all_reduce=last", True),
        ("fsdp2:gradient_sync=each", True),
    ],
)
def test_the_contract_follows_the_micro_batches_that_reduce(
    name: str, *, each: bool
) -> None:
    assert resolve(name).capabilities.reduces_each_micro_batch == each


def test_a_dtype_that_rounds_is_outside_of_the_contract() -> None:
    wide, narrow = map(resolve, ("fsdp2", "fsdp2:reduce_dtype=float32"))
    assert wide.capabilities.covers("dtype", "float64")
    assert not narrow.capabilities.covers("dtype", "float64")
    assert narrow.capabilities.covers("use", "twice")


EACH_ONCE = (
    f"subject 'fsdp2': expected each of the options {', '.join(OPTIONS)} at most once, as "
    "name=value; got "
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ddp:x=1", "subject 'ddp' takes no options, got 'x=1'"),
        ("wrong.py:x=1,y=2", "subject 'wrong.py' takes no options, got 'x=1,y=2'"),
        ("fsdp2:reshard", f"{EACH_ONCE}'reshard'"),
        ("fsdp2:shard_size=1,size=1", f"{EACH_ONCE}'size=1'"),
        ("fsdp2:shard_size=1,shard_size=2", f"{EACH_ONCE}'shard_size=2'"),
        ("fsdp2:shard_size=1,", f"{EACH_ONCE}''"),
        (
            "fsdp2:reduce_dtype=float16",
            "subject 'fsdp2': expected reduce_dtype as float32 or float64 or bfloat16, got 'float16'",
        ),
        (
            "hsdp:gradient_divide_factor=3",
            ("subject 'hsdp': expected gradient_divide_factor as a power of two from 0.0625 to 16, "
            "such as 2, got '3'"),
        ),
        ("fsdp2:shard_size=0", "subject 'fsdp2': expected shard_size as a positive integer, got '0'"),
    ],
)  # fmt: skip
def test_an_option_that_is_not_taken_is_refused(name: str, text: str) -> None:
    with pytest.raises(SubjectError) as caught:
        resolve(name)
    assert str(caught.value) == text


# Our synchronizer with its options: right, by the code that they choose.


PLAYED = Scenario(
    MeshSpec((2,), ("dp",)), (ParameterSpec("p0", (3,), ("R",)),), (2, 1), 64
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ("", {"reduction.py"}),
        (":comm_hook=all_reduce", {"comm_hook_transport.py"}),
        (":comm_hook=all_reduce,unused=keep_none", {"comm_hook_transport.py"}),
        (":unused=keep_none", {"reduction.py"}),
    ],
)
def test_options_choose_the_code_that_reduces(options: str, waits: set[str]) -> None:
    subject = resolve(f"synchronizer{options}")
    run = SimBackend().run(PLAYED, subject)
    assert check(PLAYED, run, subject.capabilities) == []
    records = run.ranks[0].trace
    lines = {str(each.source) for each in records if isinstance(each, CollectiveWait)}
    assert {line.rpartition("/")[2].partition(":")[0] for line in lines} == waits
