"""The call of a user's `parallelize`, and its result."""

from __future__ import annotations

import traceback
from typing import Any

import torch.distributed.device_mesh
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._pytree import tree_leaves

from syncverify.calling import call
from syncverify.errors import UsageError
from syncverify.faces.whole_step.training import Training


def wired_model(training: Training, model: nn.Module, mesh: DeviceMesh) -> Any:
    """Put a model on a mesh.

    Args:
        training: Model, data, loss and parallelism that the user describes.
        model: The plain model.
        mesh: The mesh.

    Returns:
        What `parallelize` returns; the model where it returns None.

    Raises:
        KeyError: It raises one of its own.
        UsageError: It takes an axis that the mesh lacks, or returns no module.
    """
    values = {"model": model, "mesh": mesh, **training.sizes}
    try:
        wired = call(training.parallelize, values)
    except KeyError as error:
        if not (taken := _missing_axes(error)):
            raise
        raise UsageError(
            f"parallelize() takes the axis {taken} of the mesh, and the layout has "
            f"{', '.join(map(repr, mesh.mesh_dim_names or ()))} alone; name it in the layout "
            "(size 1 is allowed)"
        ) from None
    if wired is None:
        return model
    if not any(isinstance(each, nn.Module) for each in tree_leaves(wired)):
        raise UsageError(
            "expected parallelize() to return the model, a list or tuple with modules, or "
            f"None for a model that it changes in place, not {type(wired).__name__}"
        )
    return wired


def _missing_axes(error: KeyError) -> str:
    """Return the axes that a program takes from a mesh without them; "" for another error."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    module = torch.distributed.device_mesh.__name__
    for frame in frames:
        names = frame.f_locals.get("mesh_dim_names")
        mesh = frame.f_locals.get("self")
        if frame.f_globals.get("__name__") == module and isinstance(mesh, DeviceMesh):
            listed = (names,) if isinstance(names, str) else tuple(names or ())
            known = mesh.mesh_dim_names or ()
            return " and ".join(repr(each) for each in listed if each not in known)
    return ""
