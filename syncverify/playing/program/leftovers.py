"""Leftovers: the remains of a subject after `unbind()`, on parameters and beside them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterable
from dataclasses import replace
from types import FrameType
from typing import Any

import torch
from torch import nn

from syncverify.playing.program.graphs.custom_function import INTO_ONE_STORAGE
from syncverify.playing.program.held_objects import holds_tensor
from syncverify.playing.program.model import LocalModel
from syncverify.playing.program.own_parameters import OwnParameters, local_part
from syncverify.sim.process_wide.generators import StepDraws
from syncverify.sim.process_wide.settings import (
    ProcessSettings,
    no_collection_of_cycles,
)
from syncverify.trace.run import Leftovers, RankRun
from syncverify.trace.source_files import is_subject_line
from syncverify.trace.source_lines import SourceLine
from syncverify.trace.stacks import line_of


class Before:
    """A rank's parameters and process, as they were before a subject was made."""

    def __init__(self, model: LocalModel, own: OwnParameters) -> None:
        self.model = model
        self.own = own
        self.draws = StepDraws()
        self._hooks = {name: _hooks(p) for name, p in model.parameters.items()}
        self._attributes = {name: {*vars(p)} for name, p in model.parameters.items()}
        self._sharing = _sharing_storage(_local_parts(model))
        self._settings = ProcessSettings()

    def leftovers(self) -> Leftovers:
        """Find what a subject left behind, or took away."""
        parameters = self.model.parameters
        added = {name: _hooks(p) - self._hooks[name] for name, p in parameters.items()}
        tensors = {
            name: _new_holders(parameter, self._attributes[name], parameters.values())
            for name, parameter in parameters.items()
        }
        now = _sharing_storage(_local_parts(self.model))
        return Leftovers(
            hooks={name: len(hooks) for name, hooks in added.items() if hooks},
            shared_gradients=_sharing_storage(self._gradients_of_their_own()),
            changed=self.own.changed(),
            lost_hooks=tuple(
                name for name, p in parameters.items() if self._hooks[name] - _hooks(p)
            ),
            attributes={name: found for name, found in tensors.items() if found},
            shared_parameters=tuple(name for name in now if name not in self._sharing),
            settings=self._settings.changed(),
            thread_settings=self._settings.rank_changed(),
            reseeded=self._settings.reseeded(),
            repeating=self.draws.repeating(),
        )

    def _gradients_of_their_own(self) -> dict[str, torch.Tensor]:
        """Return the gradients but for those that the losses put into one storage."""
        joined = {
            spec.name
            for spec in self.model.scenario.parameters
            if spec.use == INTO_ONE_STORAGE
        }
        gradients = self.model.local_gradients()
        return {name: g for name, g in gradients.items() if name not in joined}


def _local_parts(model: LocalModel) -> dict[str, torch.Tensor]:
    return {name: local_part(each) for name, each in model.parameters.items()}


def _hooks(parameter: nn.Parameter) -> set[tuple[int, int]]:
    # torch has no public way to list hooks. Every tensor keeps them in these dictionaries
    # (torch/_tensor.py, register_post_accumulate_grad_hook).
    registries = (
        parameter._post_accumulate_grad_hooks,  # noqa: SLF001
        parameter._backward_hooks,  # noqa: SLF001
    )
    return {
        (number, key) for number, each in enumerate(registries) for key in each or ()
    }


def _new_holders(
    parameter: nn.Parameter, before: Collection[str], all_of_rank: Collection[object]
) -> tuple[str, ...]:
    """Name the new attributes of a parameter by which tensors live on."""
    # Memory of parameters lives on anyhow, so a container of parameters holds nothing.
    return tuple(
        name
        for name, value in vars(parameter).items()
        if name not in before and holds_tensor(value, besides=all_of_rank)
    )


def calls_of_backward(loss: torch.Tensor) -> tuple[SourceLine, ...]:
    """Run a plain backward and return the functions in user files that it called.

    A hook of a node is in no dictionary that Python can read, but it is called.

    Returns:
        First line of each function.
    """
    called: dict[SourceLine, None] = {}

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and is_subject_line(frame.f_code.co_filename):
            called[line_of(frame.f_code, frame.f_lasti)] = None

    before: Any = sys.getprofile()
    # A finalizer of an earlier subject, which the collector calls, is none of this one's.
    with no_collection_of_cycles():
        sys.setprofile(note)
        try:
            loss.backward()
        finally:
            # A profiler in C, such as cProfile, is no function that can be set again.
            sys.setprofile(before if callable(before) else None)
            if hasattr(before, "enable"):
                before.enable()
    return tuple(called)


def drop_what_is_undone(runs: Iterable[RankRun], before: ProcessSettings) -> None:
    """Drop changes of the process that another rank has undone by now; all ranks have ended.

    Ranks that are threads share some settings: one may look while another one is in a block.
    """
    changed = before.changed()
    for run in runs:
        if (left := run.leftovers) is not None:
            settings = tuple(each for each in left.settings if each in changed)
            run.leftovers = replace(left, settings=settings)


def _sharing_storage(tensors: dict[str, torch.Tensor]) -> tuple[str, ...]:
    sharing: set[str] = set()
    for (one, first), (other, second) in itertools.combinations(tensors.items(), 2):
        same = first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        if same and first.numel() and second.numel():
            sharing |= {one, other}
    return tuple(name for name in tensors if name in sharing)
