"""Hypothesis strategies for distributed training scenarios.

Functions that return a strategy remember it. Scenarios ask for strategies in the middle of
a draw, where Hypothesis examines each new object for longer than it draws from it.
"""

from __future__ import annotations

from strategies.meshes import meshes
from strategies.modules import module_parameter_lists, modules
from strategies.parameters import parameter_lists, parameters, shapes
from strategies.placements import placements
from strategies.scenarios import bucket_caps, scenarios
from strategies.schedules import schedules
from strategies.steps import accumulations

__all__ = [
    "accumulations",
    "bucket_caps",
    "meshes",
    "module_parameter_lists",
    "modules",
    "parameter_lists",
    "parameters",
    "placements",
    "scenarios",
    "schedules",
    "shapes",
]
