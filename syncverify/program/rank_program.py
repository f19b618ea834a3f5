"""The rank program: the training program that plays a scenario on one rank.

The same code runs on every backend. It calls the subject only through the subject API,
observes gradients only at points where the API allows to read them, and judges nothing.

One scenario, in order:

    freeze parameters              if an event `unfreeze` comes first
    make and bind the subject      announce micro-batches if its constructor takes no number
    for each step:
        change parameters          events `freeze`, `unfreeze`, `cast`, `move`
        announce micro-batches     `set_required_accumulations()`, if there is one
        backwards                  observed after each but the last: "accumulated"
        wait()                     "reduced"
        update parameters          as an optimizer does, in place
        change parameters          event `cast_before_zero`
        zero_grad()                "zeroed"
        unbind and bind            events of `REBINDING`
    unbind the subject, drop it, and look for leftovers
    one plain backward             "unbound"
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from syncverify.program.caller_streams import CallerStreams
from syncverify.program.changes import change_parameters, freeze
from syncverify.program.gradient_forms import misfits_of
from syncverify.program.graphs.backwards import num_backwards, run_backward
from syncverify.program.graphs.hooks import install_lasting_hooks
from syncverify.program.graphs.losses import Losses
from syncverify.program.held_objects import held_by_subject
from syncverify.program.injected_error import InjectedError
from syncverify.program.leftovers import Before, OwnParameters, calls_of_backward
from syncverify.program.model import LocalModel, build_model, local_part
from syncverify.program.optimizer import update
from syncverify.program.replaced_gradients import ReplacedGradients
from syncverify.program.subject_error import calling
from syncverify.program.two_synchronizers import TwoSynchronizers
from syncverify.scenario import step_plan, vocabulary
from syncverify.scenario.distribution import build_mesh
from syncverify.scenario.plain_features import MANY
from syncverify.scenario.scenario import Scenario
from syncverify.scenario.vocabulary import PLAIN, REBINDING
from syncverify.subjects.subject import Subject
from syncverify.subjects.subject_api import (
    EndsStepsEarly,
    OwnsGradients,
    Resets,
    RunsMicroBatches,
    Synchronizer,
    check_methods,
    takes_new_counts,
)
from syncverify.trace.recorder import Recorder
from syncverify.trace.records import Moment, Phase
from syncverify.trace.run import Observation, RankRun

MeshBuilder = Callable[[Scenario, torch.device], DeviceMesh]

BYTES_PER_MB = 2**20  # d9d, DDP and Megatron mean MiB when they say MB


def play(
    scenario: Scenario,
    subject: Subject,
    *,
    rank: int,
    device: torch.device,
    result: RankRun,
    recorder: Recorder,
    mesh_builder: MeshBuilder = build_mesh,
) -> None:
    """Play a scenario, whose mesh spans the default process group, on one rank.

    `result` is filled while the program runs, so that it survives a fault. `recorder` is
    already connected to the process groups. `mesh_builder` makes the mesh of DTensors.

    Raises:
        SubjectRaisedError: The subject raised.
        SubjectError: The synchronizer lacks a part of the subject API.
    """
    result.trace, result.engine = recorder.trace, recorder.engine
    dtensors = subject.capabilities.tensors == "dtensor"
    mesh = mesh_builder(scenario, device) if dtensors else None
    model = build_model(scenario, rank=rank, device=device, mesh=mesh)
    freeze(scenario, -1, model.parameters)
    if scenario.backward == "hooks_of_others":
        install_lasting_hooks(model.parameters.values())
    recorder.watch(model.local_gradients, model.parameters)
    streams = CallerStreams(scenario.launch, device)
    _RankProgram(scenario, subject, model, result, recorder, streams).play()


class _RankProgram:
    """The training program of one rank; arguments are those of `play`."""

    def __init__(
        self,
        scenario: Scenario,
        subject: Subject,
        model: LocalModel,
        result: RankRun,
        recorder: Recorder,
        streams: CallerStreams,
    ) -> None:
        self._scenario = scenario
        self._subject = subject
        self._model = model
        self._result = result
        self._recorder = recorder
        self._streams = streams
        self._own = OwnParameters(model.parameters)
        self._before = Before(model, self._own)
        self._takes_count = subject.takes_count
        self._replaced = ReplacedGradients(model.parameters.values())

    def play(self) -> None:
        synchronizer = self._make()
        self._bind(synchronizer, 0)
        if not self._takes_count:
            self._announce_count(synchronizer, 0)
        self._ask_owners(synchronizer)
        for step in range(self._scenario.num_steps):
            synchronizer = self._play_step(synchronizer, step)
            if self._scenario.num_steps >= MANY["steps"]:
                self._result.held.append(held_by_subject(synchronizer))
        self._replaced.let_go()
        self._unbind(synchronizer, self._scenario.num_steps - 1)
        # Drop the last reference, so that only leftovers keep hooks and buffers alive.
        del synchronizer
        left = self._result.leftovers = self._before.leftovers()
        self._result.leftovers = replace(left, called=self._play_after_unbind())

    def _make(self, step: int = 0) -> Synchronizer:
        make = self._subject.factory
        if self._scenario.synchronizers == "two":
            make = functools.partial(TwoSynchronizers, make)
        with self._streams.for_bind(), self._calling("bind", step):
            synchronizer = make(
                self._model.param_groups(),
                self._scenario.bucket_cap_bytes / BYTES_PER_MB,
                *([num_backwards(self._scenario, step)] if self._takes_count else []),
            )
        check_methods(synchronizer, self._subject.name, takes_count=self._takes_count)
        return synchronizer

    def _bind(self, synchronizer: Synchronizer, step: int) -> None:
        with self._streams.for_bind(), self._calling("bind", step):
            synchronizer.bind()

    def _ask_owners(self, synchronizer: Synchronizer) -> None:
        is_asked = self._subject.capabilities.gradients == "owner"
        if is_asked and isinstance(synchronizer, OwnsGradients):
            with self._calling("bind", 0):
                self._result.owned = frozenset(
                    name
                    for name, parameter in self._model.parameters.items()
                    if synchronizer.owner(parameter)
                )

    def _unbind(self, synchronizer: Synchronizer, step: int) -> None:
        with self._streams.for_bind(), self._calling("unbind", step):
            synchronizer.unbind()

    def _play_step(self, synchronizer: Synchronizer, step: int) -> Synchronizer:
        event = self._scenario.step_event(step)
        if step_plan.changes_parameters(self._scenario, step):
            self._change_parameters(step)
        with self._recorder.not_recording_accesses():
            self._before.draws.draw()
        with self._streams.for_step(step):
            if step_plan.announces_count(self._scenario, step):
                self._announce_count(synchronizer, step)
            try:
                self._run_backwards(synchronizer, step)
            except InjectedError:
                self._recover(synchronizer, step)
            else:
                if event != "unbind_early":
                    self._finish_step(synchronizer, step)
            if event != "unbind_early":
                self._observe("zeroed", step)
            if event in vocabulary.DROPPING:
                self._model.drop_gradients(every=vocabulary.DROPPING[event])
        return self._rebind(synchronizer, step) if event in REBINDING else synchronizer

    def _rebind(self, synchronizer: Synchronizer, step: int) -> Synchronizer:
        event = self._scenario.step_event(step)
        following = min(step + 1, self._scenario.num_steps - 1)
        if event == "rebind_announced":
            self._announce_count(synchronizer, following)
        self._unbind(synchronizer, step)
        if event == "rebind_announced/unbound":
            self._announce_count(synchronizer, following)
        if event == "unbind_early":
            self._model.drop_gradients()
        if event == "remade":
            synchronizer = self._make(following)
        self._bind(synchronizer, step)
        if event == "unbind_early":
            self._observe("zeroed", step)
        return synchronizer

    def _change_parameters(self, step: int) -> None:
        # Recorded as a call of the subject: torch raises where the subject's hooks or
        # views forbid the change, and that error is the subject's. The accesses are not.
        ours = self._recorder.not_recording_accesses()
        with self._own.changing(), self._calling("zero_grad", step), ours:
            change_parameters(self._scenario, step, self._model.parameters)

    def _announce_count(self, synchronizer: Synchronizer, step: int) -> None:
        if takes_new_counts(synchronizer):
            count = num_backwards(self._scenario, step)
            moment = Moment("zero_grad", step)
            with calling(self._recorder, moment, "set_required_accumulations"):
                synchronizer.set_required_accumulations(count)

    def _run_backwards(self, synchronizer: Synchronizer, step: int) -> None:
        agreed = step_plan.num_agreed_micro_batches(self._scenario, step)
        for micro_batch in range(step_plan.num_micro_batches(self._scenario, step)):
            is_last = micro_batch >= agreed - 1
            with self._calling("backward", step, micro_batch):
                self._run_micro_batch(synchronizer, step, micro_batch, is_last=is_last)
            if not is_last:  # after the last backward, reductions may still write
                self._observe("accumulated", step, micro_batch)
                self._replace_gradients("set_to_none/replaced_while_accumulating", step)

    def _finish_step(self, synchronizer: Synchronizer, step: int) -> None:
        event = self._scenario.step_event(step)
        if event == "tail" and isinstance(synchronizer, EndsStepsEarly):
            with self._calling("wait", step):
                synchronizer.flush()
        if event not in vocabulary.WITHOUT_WAIT:
            for _ in range(2 if event == "wait_twice" else 1):
                with self._calling("wait", step):
                    synchronizer.wait()
            self._observe("reduced", step)
            self._run_optimizer()
            self._replace_gradients("set_to_none/replaced", step)
        if event in vocabulary.BEFORE_ZERO:
            self._change_parameters(step)
        with self._calling("zero_grad", step):
            synchronizer.zero_grad()

    def _run_optimizer(self) -> None:
        # A write in place fails on other gradients, and their property tells why.
        misfits = self._result.observations[-1].misfits
        local = self._model.local_gradients()
        fitting = {name: local[name] for name in local if name not in misfits}
        gradients = self._read_by_optimizer(fitting)
        trained = [
            local_part(parameter)
            for parameter in self._model.parameters.values()
            if parameter.grad is not None and parameter.requires_grad
        ]
        if self._subject.capabilities.owns_parameters:
            trained = []
        with self._own.changing(), self._recorder.optimizing():
            update(trained, gradients, keeps_values=self._scenario.module != PLAIN)

    def _replace_gradients(self, event: str, step: int) -> None:
        with self._recorder.optimizing():
            if self._scenario.step_event(step) == event:
                self._replaced.replace(vocabulary.REPLACING[event])

    def _recover(self, synchronizer: Synchronizer, step: int) -> None:
        with self._calling("zero_grad", step):
            if isinstance(synchronizer, Resets):
                synchronizer.reset()
            else:
                synchronizer.zero_grad()

    def _run_micro_batch(
        self, synchronizer: Synchronizer, step: int, micro_batch: int, *, is_last: bool
    ) -> None:
        if not isinstance(synchronizer, RunsMicroBatches):
            run_backward(self._scenario.backward, self._losses(step, micro_batch))
        elif self._scenario.backward == PLAIN:
            synchronizer.run_micro_batch(
                lambda: self._loss(step, micro_batch), is_last=is_last
            )
        else:
            self._hand_over_backward(synchronizer, step, micro_batch, is_last=is_last)

    # The protocol leaves out `run_backward`, which only some of its subjects take: `Any`.
    def _hand_over_backward(
        self, synchronizer: Any, step: int, micro_batch: int, *, is_last: bool
    ) -> None:
        """Let a subject run forward, and pass our backward on to it."""
        computed: list[Losses] = []

        # Wrappers look for tensors in the output of a forward, and DDP puts nodes behind
        # them. So the output is a dict, and no class of ours.
        def compute_terms() -> dict[str, torch.Tensor]:
            computed.append(self._losses(step, micro_batch))
            return dict(computed[-1].terms)

        def run(terms: Mapping[str, torch.Tensor]) -> None:
            losses = replace(computed[-1], terms=terms)
            run_backward(self._scenario.backward, losses)

        synchronizer.run_micro_batch(compute_terms, is_last=is_last, run_backward=run)

    def _play_after_unbind(self) -> tuple[str, ...]:
        """Run one plain backward: parameters must behave as if they were never managed.

        Returns:
            The subject's functions that it called.
        """
        step = self._scenario.num_steps
        self._model.drop_gradients()
        # The subject is gone, so these accesses cannot be its mistakes.
        not_recording = self._recorder.not_recording_accesses()
        with self._calling("after_unbind", step), not_recording:
            called = calls_of_backward(self._loss(step, 0))
            # The functions of a layer are in a user's files too.
            if called and self._scenario.module != PLAIN:
                copy = self._model.copy()
                own = calls_of_backward(copy.loss(step=step, micro_batch=0))
                called = tuple(line for line in called if line not in own)
        self._observe("unbound", step)
        return called

    def _loss(self, step: int, micro_batch: int) -> torch.Tensor:
        with self._recorder.computing_loss(self._model.parameters.values()):
            return self._model.loss(
                step=step,
                micro_batch=micro_batch,
                using=self._forward_of,
                fails=self._fails(step, micro_batch),
            )

    def _losses(self, step: int, micro_batch: int) -> Losses:
        with self._recorder.computing_loss(self._model.parameters.values()):
            return self._model.losses(
                step=step,
                micro_batch=micro_batch,
                using=self._forward_of,
                fails=self._fails(step, micro_batch),
                as_rank=self._recorder.as_rank,
            )

    @contextmanager
    def _forward_of(self, name: str) -> Iterator[None]:
        """Switch to the stream of a parameter's part of the forward."""
        used = [self._model.parameters[name]]
        with self._streams.for_forward(name), self._recorder.computing_loss(used):
            yield

    def _fails(self, step: int, micro_batch: int) -> bool:
        """Tell whether the backward of a micro-batch fails, which is the agreed last one."""
        last = step_plan.num_agreed_micro_batches(self._scenario, step) - 1
        raises = self._scenario.step_event(step) == "raise_in_backward"
        return raises and micro_batch == last

    def _calling(
        self, phase: Phase, step: int, micro_batch: int | None = None
    ) -> AbstractContextManager[None]:
        """Record a call of the subject, and tell its exceptions from the harness's."""
        return calling(self._recorder, Moment(phase, step, micro_batch))

    def _read_by_optimizer(
        self, gradients: Mapping[str, torch.Tensor]
    ) -> list[torch.Tensor]:
        """List the gradients that an optimizer reads: not those that another rank owns."""
        if self._subject.capabilities.gradients == "all ranks":
            return list(gradients.values())
        owned = self._result.owned or ()
        return [gradient for name, gradient in gradients.items() if name in owned]

    def _observe(self, point: str, step: int, micro_batch: int | None = None) -> None:
        local = self._model.local_gradients()
        if point == "reduced":
            # An optimizer would read here, on the current stream. The copies below are the
            # harness's own, and wait for the device; they stay out of the trace.
            self._recorder.read("read", self._read_by_optimizer(local))
        copies = {
            name: local[name].cpu().clone() if name in local else None
            for name in self._model.parameters
        }
        self._result.observations.append(
            Observation(
                point,  # type: ignore[arg-type]  # literals above
                step,
                micro_batch,
                copies,
                self._model.partial_gradients(),
                misfits_of(self._model.parameters) if point == "reduced" else {},
            )
        )
