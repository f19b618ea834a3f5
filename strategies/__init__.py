"""Hypothesis strategies for distributed training scenarios.

Functions that return a strategy remember it. Scenarios ask for strategies in the middle of
a draw, where Hypothesis examines each new object for longer than it draws from it.
"""

from __future__ import annotations

from strategies.backwards import backwards
from strategies.meshes import meshes
from strategies.parameters import parameter_lists, parameters, shapes
from strategies.placements import placements
from strategies.scenarios import bucket_caps, scenarios
from strategies.schedules import schedules
from strategies.steps import accumulations
from strategies.uses import uses

__all__ = [
    "accumulations",
    "backwards",
    "bucket_caps",
    "meshes",
    "parameter_lists",
    "parameters",
    "placements",
    "scenarios",
    "schedules",
    "shapes",
    "uses",
]
