"""Each use of a parameter has the constant for its gradient, to the bit."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils import cpp_extension

from syncverify.playing.program.graphs import cpp
from syncverify.playing.program.graphs.uses import USES
from syncverify.playing.sim import SimBackend
from syncverify.scenario.feature_table import PLAIN
from syncverify.subjects.subject import resolve
from tests.engine_scenarios import scenario_of

COMPILED = ("compiled_region",)
# The constants of a dtype reach as far as it holds integers exactly.
BITS = {"float32": 16, "bfloat16": 8, "float16": 11, "float64": 16}
SHAPES = [(), (1,), (5,), (2, 3), (0,), (3, 0), (2, 1, 3, 2)]


def has_compiler() -> bool:
    try:
        cpp_extension.get_cxx_compiler()
        return cpp_extension.is_ninja_available()
    except (OSError, RuntimeError):
        return False


CPP_MARKS = [
    pytest.mark.long,
    pytest.mark.skipif(not has_compiler(), reason="no C++ compiler, or no ninja"),
]
every_use = pytest.mark.parametrize(
    "word",
    [
        pytest.param(word, marks=CPP_MARKS if word in cpp.IN_CPP else pytest.mark.slow)
        if word in (*cpp.IN_CPP, *COMPILED)
        else word
        for word in USES
    ],
)


def parameter_of(shape: tuple[int, ...], dtype: torch.dtype) -> nn.Parameter:
    values = torch.arange(torch.Size(shape).numel()) % 5 + 1
    return nn.Parameter(values.reshape(shape).to(dtype))


def constant_of(shape: tuple[int, ...], name: str) -> torch.Tensor:
    """Make the largest integers that the dtype holds exactly, odd ones among them."""
    values = 2 ** BITS[name] - 1 - 2 * torch.arange(torch.Size(shape).numel())
    values[1::3] *= -1
    return values.reshape(shape).to(getattr(torch, name))


@pytest.mark.long
@every_use
@pytest.mark.parametrize("name", BITS)
def test_the_gradient_is_the_constant(word: str, name: str) -> None:
    for shape in SHAPES:
        dtype: torch.dtype = getattr(torch, name)
        parameter, constant = parameter_of(shape, dtype), constant_of(shape, name)
        term = USES[word](parameter, constant)
        assert term.shape == ()
        assert term.dtype == torch.float32
        term.backward()
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, constant), (word, shape)
        assert torch.equal(parameter, parameter_of(shape, dtype))


@pytest.mark.long
@every_use
@pytest.mark.parametrize("overflow", ["inf", "nan"])
def test_an_element_that_overflows_stays_one(word: str, overflow: str) -> None:
    parameter = parameter_of((3,), torch.float32)
    constant = torch.tensor([5.0, float(overflow), -3.0])
    USES[word](parameter, constant).backward()
    assert parameter.grad.isfinite().tolist() == [True, False, True]
    assert parameter.grad[::2].tolist() == [5.0, -3.0]


# Dynamo reads the `.grad` of every argument.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@every_use
def test_a_local_part_may_be_no_leaf(word: str) -> None:
    parameter, constant = (
        parameter_of((3,), torch.float32),
        constant_of((3,), "float32"),
    )
    USES[word](parameter.view_as(parameter), constant).backward()
    assert torch.equal(parameter.grad, constant)


@every_use
def test_a_local_part_may_lie_transposed_in_memory(word: str) -> None:
    whole = parameter_of((3, 2), torch.float32).detach().t()
    parameter = nn.Parameter(whole)
    constant = constant_of((2, 3), "float32")
    USES[word](parameter, constant).backward()
    assert torch.equal(parameter.grad, constant)


@pytest.mark.long
def test_torch_logs_no_missing_gpu_where_nothing_is_compiled() -> None:
    """Its module of extensions does so when imported, beside CUDA without a GPU."""
    code = (
        "import sys; from syncverify.playing import workers; workers.import_dynamo()\n"
        "sys.exit('torch.utils.cpp_extension' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(("word", "expected"), [("cpp_kernel", 1), (PLAIN, 0)])
def test_ranks_do_not_compile(
    word: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[threading.Thread] = []

    def refuse() -> None:
        asked.append(threading.current_thread())
        raise cpp.NoCompilerError("no compiler in this test")

    monkeypatch.setattr(cpp, "load_operators", refuse)
    subject = resolve("synchronizer")
    if expected:
        with pytest.raises(cpp.NoCompilerError):
            SimBackend().run(scenario_of("use", word), subject)
    else:
        assert SimBackend().run(scenario_of("use", word), subject).fault is None
    assert asked == [threading.main_thread()] * expected


def test_a_build_that_was_killed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    folders: list[Path] = []

    def load(*, build_directory: str, **_: object) -> None:
        folders.append(Path(build_directory))
        assert not (folders[0] / "lock").exists()
        (folders[0] / "lock").touch()  # and is killed

    monkeypatch.setattr(cpp_extension, "load", load)
    for _ in range(2):
        cpp.load_operators.__wrapped__()
    assert [folder.parent for folder in folders] == [tmp_path, tmp_path]
