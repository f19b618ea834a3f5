"""Options behind the name of a built-in subject: found, kept in the name, or refused."""

import pytest

from syncverify.backends.packed_subject import pack_subject, unpack_subject
from syncverify.errors import SubjectError
from syncverify.subjects.fsdp2 import FullyShardedSubject
from syncverify.subjects.fsdp2_options import OPTIONS
from syncverify.subjects.subject import resolve
from syncverify.subjects.subject_options import split_options

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


@pytest.mark.parametrize(
    "name", ["ddp", "mypackage.sync:Mine", "sync.py:Mine", r"C:\sync.py"]
)
def test_a_name_without_options_is_as_it_was(name: str) -> None:
    assert split_options(name) == (name, ())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ddp:x=1", "subject 'ddp' takes no options, got 'x=1'"),
        (
            "fsdp2:reshard",
            (
                f"subject 'fsdp2': expected each of the options {', '.join(OPTIONS)} at "
                "most once, as name=value; got 'reshard'"
            ),
        ),
        *(
            (f"{path}:x=1,y=2", f"subject {path!r} takes no options, got 'x=1,y=2'")
            for path in ("package.module:Eager", "wrong.py")
        ),
        (
            "fsdp2:reduce_dtype=float16",
            "subject 'fsdp2': expected reduce_dtype as float32 or float64 or bfloat16, got 'float16'",
        ),
        (
            "hsdp:gradient_divide_factor=3",
            (
                "subject 'hsdp': expected gradient_divide_factor as a power of two from "
                "0.0625 to 16, such as 2, got '3'"
            ),
        ),
        (
            "fsdp2:shard_size=0",
            "subject 'fsdp2': expected shard_size as a positive integer, got '0'",
        ),
        *(
            (
                f"fsdp2:shard_size=1,{wrong}",
                (
                    f"subject 'fsdp2': expected each of the options {', '.join(OPTIONS)} at "
                    f"most once, as name=value; got {wrong!r}"
                ),
            )
            for wrong in ("size=1", "shard_size=2", "")
        ),
    ],
)
def test_an_option_that_is_not_taken_is_refused(name: str, text: str) -> None:
    with pytest.raises(SubjectError) as caught:
        resolve(name)
    assert str(caught.value) == text


def test_a_subject_that_does_not_shard_takes_fewer_options() -> None:
    assert resolve("replicate-fsdp:force_sum_reduction_for_comms=true")
    with pytest.raises(SubjectError):
        resolve("replicate-fsdp:shard_size=1")
