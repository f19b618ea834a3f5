"""Gradients of gradients: losses that contain derivatives of other losses."""

from __future__ import annotations

import torch

from syncverify.playing.program.graphs.products import dot


def double_backward(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Sum the gradient of a square; that gradient's gradient is the constant."""
    square = dot(local * local, constant / 2)
    (gradient,) = torch.autograd.grad(square, local, create_graph=True)
    return gradient.to(torch.float32).sum()


def jacobian_rows(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Sum all rows of a Jacobian, computed at once (`is_grads_batched`)."""
    square = (local * local * (constant / 2)).reshape(-1)
    if not square.numel():  # torch refuses an empty batch
        return dot(local, constant)
    rows = torch.eye(square.numel(), dtype=square.dtype, device=square.device)
    (jacobian,) = torch.autograd.grad(
        square, local, grad_outputs=rows, create_graph=True, is_grads_batched=True
    )
    return jacobian.to(torch.float32).sum()


def hessian(local: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
    """Take the second derivative of a loss that contains the square of a factor."""
    product = dot(local, constant)
    one = torch.ones((), device=local.device)
    second: torch.Tensor = torch.autograd.functional.hessian(
        lambda factor: product * factor * factor / 2, one, create_graph=True
    )
    return second
