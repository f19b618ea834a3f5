"""Hypothesis strategies for distributed training scenarios."""

from __future__ import annotations

from strategies.meshes import meshes
from strategies.parameters import parameter_lists, parameters, shapes
from strategies.placements import placements
from strategies.scenarios import bucket_caps, scenarios
from strategies.steps import accumulations

__all__ = [
    "accumulations",
    "bucket_caps",
    "meshes",
    "parameter_lists",
    "parameters",
    "placements",
    "scenarios",
    "shapes",
]
