"""Bases of adapters: they give the subject API to a synchronizer that has another API.

| base | the synchronizer is |
|---|---|
| `HooksAdapter` | a class that registers hooks on parameters |
| `ModuleAdapter` | a wrapper of a module, as DDP is |
| `OptimizerAdapter` | a wrapper of an optimizer, as ZeRO is |
| `GlobalsAdapter` | a wrapper of a module, with state that belongs to the process |
"""

from syncverify.subjects.adapters.adapter import (
    LOCAL_MEAN,
    ONE_BACKWARD_A_STEP,
    Adapter,
    GlobalsAdapter,
    HooksAdapter,
    LossModule,
    ModuleAdapter,
    OptimizerAdapter,
    ParameterHolder,
    RevealingOptimizer,
)

__all__ = [
    "LOCAL_MEAN", "ONE_BACKWARD_A_STEP", "Adapter", "GlobalsAdapter", "HooksAdapter",
    "LossModule", "ModuleAdapter", "OptimizerAdapter", "ParameterHolder",
    "RevealingOptimizer",
]  # fmt: skip
