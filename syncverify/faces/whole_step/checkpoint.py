"""Saving and loading with torch's distributed checkpoint, where a training names no own way."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from syncverify.errors import UsageError


def save_distributed(
    model: Any, optimizer: Any, scaler: Any, schedule: Any, path: str
) -> None:
    """Write a checkpoint.

    Args:
        model: The model.
        optimizer: Its optimizer, or several.
        scaler: The scaler of the loss; None if there is none.
        schedule: The schedule of the learning rate; None if there is none.
        path: The folder.

    Raises:
        UsageError: torch's checkpoint takes no such model.
    """
    saved = _state(model, optimizer, scaler, schedule)
    dcp.save(saved, checkpoint_id=path)


def load_distributed(
    model: Any, optimizer: Any, scaler: Any, schedule: Any, path: str
) -> None:
    """Read a checkpoint that any mesh has written; arguments are those of saving."""
    state = _state(model, optimizer, scaler, schedule)
    own = {name: value for name, value in state.items() if name.startswith("generator")}
    known = {*dcp.FileSystemReader(path).read_metadata().state_dict_metadata}
    for name in own.keys() - known:  # the checkpoint is of fewer ranks
        del state[name]
    dcp.load(state, checkpoint_id=path)
    set_state_dict(
        model,
        _listed(optimizer),
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    for each, name in ((scaler, "scaler"), (schedule, "schedule")):
        if each is not None:
            each.load_state_dict(state[name])
    for name in own.keys() & known:
        torch.set_rng_state(state[name])


def _state(model: Any, optimizer: Any, scaler: Any, schedule: Any) -> dict[str, Any]:
    """Return the content of a checkpoint: all ranks with a part of a tensor write it.

    Raises:
        UsageError: torch's checkpoint takes no such model.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(
            "torch's distributed checkpoint takes one module; give `save` and `load`"
        )
    parameters, states = get_state_dict(model, _listed(optimizer))
    found: dict[str, Any] = {"model": parameters, "optimizer": states}
    # Values of one name are those of one rank: each rank's generator has another name.
    found[f"generator_{dist.get_rank()}"] = torch.get_rng_state()
    for each, name in ((scaler, "scaler"), (schedule, "schedule")):
        if each is not None:
            found[name] = each.state_dict()
    return found


def _listed(optimizer: Any) -> list[torch.optim.Optimizer]:
    if optimizer is None:
        return []
    return optimizer if isinstance(optimizer, list) else [optimizer]
