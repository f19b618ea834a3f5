"""The function of each word of `USES`, which computes one term of a loss.

A function takes the local part of a parameter that needs a gradient, and a constant of the
same dtype and shape. It returns a scalar in float32. The gradient is exactly the constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import torch

from syncverify.playing.program.graphs import (
    checkpointing,
    compiled,
    cpp,
    custom_function,
    higher_order,
    hooks,
    own_accumulation,
    precision,
    reuse,
    saved_tensors,
    shared_storage,
)
from syncverify.playing.program.graphs.products import dot
from syncverify.scenario.feature_table import PLAIN

Use = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_FUNCTIONS: Final[tuple[Use, ...]] = (
    reuse.twice,
    reuse.added_to_another,
    reuse.many_times,
    reuse.expanded,
    reuse.gathered,
    reuse.in_slices,
    reuse.unbound,
    reuse.restrided,
    saved_tensors.in_place_on_copy,
    saved_tensors.in_place_on_views,
    saved_tensors.in_place_result_saved,
    saved_tensors.written_after_use,
    reuse.detached_branch,
    reuse.no_grad_branch,
    reuse.inference_branch,
    reuse.pruned_branch,
    reuse.masked,
    custom_function.saves_for_backward,
    custom_function.marks_dirty,
    custom_function.non_differentiable,
    custom_function.unmaterialized,
    custom_function.needs_input_grad,
    custom_function.differentiable_once,
    custom_function.none_gradient,
    cpp.cpp_function,
    cpp.cpp_kernel,
    hooks.tensor_hooks,
    hooks.node_hooks,
    hooks.retained_gradient,
    checkpointing.checkpointed,
    checkpointing.checkpointed_reentrant,
    checkpointing.checkpointed_and_not,
    checkpointing.checkpointed_nested,
    saved_tensors.offloaded,
    saved_tensors.compressed,
    higher_order.double_backward,
    higher_order.jacobian_rows,
    higher_order.hessian,
    precision.autocast,
    compiled.compiled_region,
    own_accumulation.fused_accumulation,
    own_accumulation.fused_main_grad,
)
USES: Final[Mapping[str, Use]] = {
    PLAIN: dot,
    **{function.__name__: function for function in _FUNCTIONS},
    shared_storage.INTO_ONE_STORAGE: shared_storage.into_one_storage,
}
