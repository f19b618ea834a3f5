"""Settings of the process are restored, and changes of them are named."""

import os
import random
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import numpy.random
import pytest
import torch
from typing_extensions import override

from syncverify.sim.process_wide.generators import other_chance, restored_generators
from syncverify.sim.process_wide.settings import restored_settings
from syncverify.subjects.bugbank.bases.view_buckets import ViewBuckets
from syncverify.trace.source_lines import shown_path
from tests.programs import identities, one_parameter


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    with restored_settings():
        yield


def change_all() -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    torch.autograd.set_detect_anomaly(True)
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    torch.manual_seed(7)
    random.seed(7)


def test_each_change_is_named_and_restored() -> None:
    with restored_settings() as before:
        assert (before.rank_changed(), before.reseeded()) == ((), ())
        change_all()
        assert len(before.rank_changed()) == 4
        assert before.reseeded() == ("torch's generator", "Python's generator")
        before.restore()
        assert before.rank_changed() == ()
    assert not torch.is_anomaly_enabled()


def test_a_precision_that_one_backend_had_before_is_put_back() -> None:
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    with restored_settings() as before:
        torch.set_float32_matmul_precision("medium")
        torch.backends.cudnn.allow_tf32 = False
        assert before.rank_changed() == (
            "torch's precision of matrix products is medium, was CUDA tf32, oneDNN ieee",
            "cuDNN's use of TF32 is False, was convolutions ieee, recurrent layers tf32",
        )
    assert before.rank_changed() == ()
    assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert torch.backends.cudnn.conv.fp32_precision == "ieee"


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (None, "", "is '', was not set"),
        ("", None, "is not set, was ''"),
        ("1", "2", "is '2', was '1'"),
    ],
)
def test_a_variable_that_is_empty_is_not_one_that_is_missing(
    before: str | None, after: str | None, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(value: str | None) -> None:
        if value is None:
            monkeypatch.delenv("OF_THE_PROGRAM", raising=False)
        else:
            monkeypatch.setenv("OF_THE_PROGRAM", value)

    put(before)
    with restored_settings() as settings:
        put(after)
        assert settings.changed() == (f"the environment's OF_THE_PROGRAM {change}",)
    assert os.environ.get("OF_THE_PROGRAM") == before


def test_other_chance_ends_with_its_block_and_is_the_same_for_a_seed() -> None:
    def draw() -> tuple[float, float]:
        return torch.rand(1).item(), random.random()

    drawn, before = [], (torch.initial_seed(), random.getstate())
    for seed in (1, 1, 2):
        with other_chance(seed):
            drawn.append(draw())
    assert drawn[0] == drawn[1] != drawn[2]
    assert (torch.initial_seed(), random.getstate()) == before


def test_streams_and_the_working_directory_are_restored_and_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`redirect_stdout` and `chdir` put them back, in another order where ranks are threads."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    stdout = sys.stdout
    with restored_settings() as before:
        os.chdir("other")
        (tmp_path / "other").rmdir()
        monkeypatch.setattr(sys, "stdout", StringIO())
        assert before.changed() == ()
        assert shown_path(f"{tmp_path}/other/file.py") == f"{tmp_path}/other/file.py"
    assert Path.cwd() == tmp_path
    assert sys.stdout is stdout
    assert shown_path(f"{tmp_path}/other/file.py") == "other/file.py"


def test_a_function_that_a_verdict_relies_on_is_missed_and_put_back() -> None:
    equal = torch.equal
    with restored_settings() as settings:
        torch.equal = lambda one, other: one.shape == other.shape
        assert settings.rank_changed() == ("torch.equal is replaced",)
    assert torch.equal is equal
    assert settings.rank_changed() == ()


@pytest.mark.parametrize("seeding", [torch.manual_seed, random.seed, numpy.random.seed])
def test_a_subject_that_seeds_shows_in_a_process_that_was_seeded_alike(
    seeding: Callable[[int], object],
) -> None:
    class Seeds(ViewBuckets):
        @override
        def bind(self) -> None:
            seeding(0)
            super().bind()

    with restored_generators():
        seeding(0)
        assert identities(Seeds, one_parameter(2)) == {
            ("unbind_restores_parameters", "generator_seeded")
        }
