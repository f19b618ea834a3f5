"""Each use of a parameter has the constant for its gradient, to the bit."""

import pytest
import torch
from torch import nn
from torch.utils import cpp_extension

from syncverify.program.graphs.uses import USES

IN_CPP = ("cpp_function", "cpp_kernel")
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
        pytest.param(word, marks=CPP_MARKS if word in IN_CPP else pytest.mark.slow)
        if word in (*IN_CPP, *COMPILED)
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


@every_use
@pytest.mark.parametrize("overflow", ["inf", "nan"])
def test_an_element_that_overflows_stays_one(word: str, overflow: str) -> None:
    parameter = parameter_of((3,), torch.float32)
    constant = torch.tensor([5.0, float(overflow), -3.0])
    USES[word](parameter, constant).backward()
    assert parameter.grad.isfinite().tolist() == [True, False, True]
    assert parameter.grad[::2].tolist() == [5.0, -3.0]


@every_use
def test_a_use_adds_to_a_gradient_that_is_there_and_leaves_no_hook(word: str) -> None:
    parameter, constant = (
        parameter_of((3,), torch.float32),
        constant_of((3,), "float32"),
    )
    for _ in range(2):
        USES[word](parameter, constant).backward()
    assert torch.equal(parameter.grad, 2 * constant)
    assert not parameter._backward_hooks
    assert not parameter._post_accumulate_grad_hooks


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


@every_use
def test_a_parameter_without_elements_has_an_empty_gradient(word: str) -> None:
    parameter = parameter_of((0,), torch.float32)
    USES[word](parameter, constant_of((0,), "float32")).backward()
    assert parameter.grad.shape == (0,)
