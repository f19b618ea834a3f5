"""The test files that are played, below `test/distributed`, in torch and in copies of it."""

import re
from pathlib import Path
from typing import Final

# Names of files, by pattern of their folder.
_PLAYED: Final = {
    "_?tensor": "redistribute dtensor init api matrix_ops pointwise_ops embedding_ops common_rules "
    "random_ops view_ops utils",
    "tensor/parallel": "tp_style parallelize_api tp_examples",
    "": "device_mesh",
    "_composable/fsdp|fsdp2": "fully_shard_autograd fully_shard_clip_grad_norm_ fully_shard_comm "
    "fully_shard_extensions fully_shard_frozen fully_shard_state fully_shard_state_dict",
    "_composable": "replicate replicate_mixed_precision replicate_training",
    "pipelining": "schedule_multiproc stage",
    "checkpoint": "state_dict checkpoint fsdp_model_state fsdp_optim_state "
    "state_dict_saver__save_state_dict",
}


def played(folder: Path) -> list[str]:
    """Return the files that are played, of those that a folder has."""
    files = (each.relative_to(folder).as_posix() for each in folder.rglob("*.py"))
    return sorted(filter(_is_played, files))


def _is_played(file: str) -> bool:
    folder, _, name = file.rpartition("/")
    return any(
        re.fullmatch(pattern, folder)
        and name in {f"test_{each}.py" for each in names.split()}
        for pattern, names in _PLAYED.items()
    )
