"""Hypothesis strategies for distributed training scenarios.

Functions that return a strategy remember it. Scenarios ask for strategies in the middle of
a draw, where Hypothesis examines each new object for longer than it draws from it.
"""

from __future__ import annotations

from strategies.backwards import backwards
from strategies.bucket_caps import bucket_caps
from strategies.events import events
from strategies.launches import launches
from strategies.meshes import meshes
from strategies.modules import module_parameter_lists, modules
from strategies.parameters import parameter_lists, parameters
from strategies.placements import placements
from strategies.readiness import readiness_orders
from strategies.scenarios import scenarios
from strategies.schedules import schedules
from strategies.shapes import shapes
from strategies.steps import accumulations
from strategies.usage import usages
from strategies.uses import uses

__all__ = [
    "accumulations",
    "backwards",
    "bucket_caps",
    "events",
    "launches",
    "meshes",
    "module_parameter_lists",
    "modules",
    "parameter_lists",
    "parameters",
    "placements",
    "readiness_orders",
    "scenarios",
    "schedules",
    "shapes",
    "usages",
    "uses",
]
