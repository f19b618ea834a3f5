"""The rank program: the one function that plays a scenario on one rank.

The same code runs on every backend. It knows the subject only by its API, observes
gradients only where the API says that they may be read, and judges nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from syncverify import agenda
from syncverify.distribution import build_mesh
from syncverify.errors import SyncverifyError
from syncverify.graphs.backwards import num_backwards, run_backward
from syncverify.graphs.losses import Losses
from syncverify.lifecycle.caller_streams import CallerStreams
from syncverify.lifecycle.changes import CHANGES, change_parameters
from syncverify.lifecycle.leftovers import fingerprints, leftovers
from syncverify.lifecycle.planned_error import PlannedError
from syncverify.materialize import LocalModel, build_model
from syncverify.recorder import Recorder
from syncverify.run import Observation, RankRun
from syncverify.scenario import Scenario
from syncverify.subject import (
    EndsStepsEarly,
    Resets,
    RunsMicroBatches,
    Subject,
    Synchronizer,
    VariesAccumulations,
    check_methods,
)
from syncverify.trace import Moment, Phase
from syncverify.vocabulary import PLAIN

MeshBuilder = Callable[[Scenario, torch.device], DeviceMesh]

BYTES_PER_MB = 2**20  # what d9d, DDP and Megatron call MB is a MiB


class SubjectRaisedError(Exception):
    """The subject raised on a legal scenario; the cause is its own exception."""

    def __init__(self, moment: Moment, original: BaseException) -> None:
        super().__init__(f"{moment}: {type(original).__name__}: {original}")
        self.moment = moment
        self.original = original


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
    """Play a scenario on one rank of the default process group.

    Args:
        scenario: What to play; its mesh spans the default process group.
        subject: Whose factory makes the synchronizer.
        rank: Global rank.
        device: Where parameters live.
        result: Filled while playing, so that it survives a fault.
        recorder: Receives the trace; already connected to the process groups.
        mesh_builder: Makes the mesh of DTensor parameters.

    Raises:
        SubjectRaisedError: The subject raised.
        SubjectError: What the factory made lacks a part of the subject API.
    """
    result.events = recorder.events
    dtensors = subject.capabilities.tensors == "dtensor"
    mesh = mesh_builder(scenario, device) if dtensors else None
    model = build_model(scenario, rank=rank, device=device, mesh=mesh)
    recorder.watch(model.local_gradients)
    streams = CallerStreams(scenario.launch, device)
    _RankProgram(scenario, subject, model, result, recorder, streams).play()


class _RankProgram:
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
        self._original = fingerprints(model.parameters)

    def play(self) -> None:
        synchronizer = self._make()
        self._bind(synchronizer, 0)
        for step in range(self._scenario.num_steps):
            self._play_step(synchronizer, step)
        self._unbind(synchronizer, self._scenario.num_steps - 1)
        del synchronizer  # what it left behind shows without it
        self._result.leftovers = leftovers(self._model, self._original)
        self._play_after_unbind()

    def _make(self) -> Synchronizer:
        with self._streams.binding(), self._calling("bind", 0):
            synchronizer = self._subject.factory(
                self._model.param_groups(),
                self._scenario.bucket_cap_bytes / BYTES_PER_MB,
                self._num_backwards(step=0),
            )
        check_methods(synchronizer, self._subject.name)
        return synchronizer

    def _bind(self, synchronizer: Synchronizer, step: int) -> None:
        with self._streams.binding(), self._calling("bind", step):
            synchronizer.bind()

    def _unbind(self, synchronizer: Synchronizer, step: int) -> None:
        with self._streams.binding(), self._calling("unbind", step):
            synchronizer.unbind()

    def _num_backwards(self, step: int) -> int:
        """Count the backwards of a step that bring each parameter a gradient."""
        of_each = num_backwards(self._scenario.backward)
        return self._scenario.accumulations[step] * of_each

    def _play_step(self, synchronizer: Synchronizer, step: int) -> None:
        event = self._scenario.event(step)
        if event in CHANGES:
            with self._calling("zero_grad", step):  # torch may refuse what is managed
                change_parameters(self._scenario, step, self._model.parameters)
            self._original = fingerprints(self._model.parameters)
        with self._streams.stepping():
            self._agree_on_count(synchronizer, step)
            try:
                self._run_backwards(synchronizer, step)
            except PlannedError:
                self._recover(synchronizer, step)
            else:
                self._finish_step(synchronizer, step)
            self._observe("zeroed", step)
            if event == "set_to_none":
                self._model.drop_gradients()
        if event == "rebind":
            self._unbind(synchronizer, step)
            self._bind(synchronizer, step)

    def _agree_on_count(self, synchronizer: Synchronizer, step: int) -> None:
        if isinstance(synchronizer, VariesAccumulations) and step > 0:
            with self._calling("zero_grad", step):
                synchronizer.set_required_accumulations(self._num_backwards(step))

    def _run_backwards(self, synchronizer: Synchronizer, step: int) -> None:
        agreed = agenda.num_agreed(self._scenario, step)
        for micro_batch in range(agenda.num_backwards(self._scenario, step)):
            is_last = micro_batch >= agreed - 1
            with self._calling("backward", step, micro_batch):
                self._run_micro_batch(synchronizer, step, micro_batch, is_last=is_last)
            if not is_last:  # after the last one, reductions are in flight
                self._observe("accumulated", step, micro_batch)

    def _finish_step(self, synchronizer: Synchronizer, step: int) -> None:
        event = self._scenario.event(step)
        if event == "tail" and isinstance(synchronizer, EndsStepsEarly):
            with self._calling("wait", step):
                synchronizer.flush()
        if event != "zero_before_wait":
            for _ in range(1 + (event == "wait_twice")):
                with self._calling("wait", step):
                    synchronizer.wait()
            self._observe("reduced", step)
        with self._calling("zero_grad", step):
            synchronizer.zero_grad()

    def _recover(self, synchronizer: Synchronizer, step: int) -> None:
        with self._calling("zero_grad", step):
            if isinstance(synchronizer, Resets):
                synchronizer.reset()
            else:
                synchronizer.zero_grad()

    def _run_micro_batch(
        self, synchronizer: Synchronizer, step: int, micro_batch: int, *, is_last: bool
    ) -> None:
        def compute_loss() -> torch.Tensor:
            return self._loss(step, micro_batch)

        def compute_losses() -> Losses:
            return self._losses(step, micro_batch)

        run = functools.partial(run_backward, self._scenario.backward)
        if not isinstance(synchronizer, RunsMicroBatches):
            run(compute_losses())
        elif self._scenario.backward == PLAIN:
            synchronizer.run_micro_batch(compute_loss, is_last=is_last)
        else:
            driven: Any = synchronizer  # what takes drivers is no protocol of its own
            driven.run_micro_batch(compute_losses, is_last=is_last, run_backward=run)

    def _play_after_unbind(self) -> None:
        """Run one plain backward: the parameters must behave as if never managed."""
        step = self._scenario.num_steps
        self._model.drop_gradients()
        # The subject is gone: what happens is not its doing.
        off = self._recorder.not_recording_accesses()
        with self._calling("after_unbind", step), off:
            _backward(lambda: self._loss(step, 0))
        self._observe("unbound", step)

    def _loss(self, step: int, micro_batch: int) -> torch.Tensor:
        with self._recorder.computing_loss(self._model.parameters.values()):
            return self._model.loss(
                step=step,
                micro_batch=micro_batch,
                using=self._using,
                fails=self._fails(step, micro_batch),
            )

    def _losses(self, step: int, micro_batch: int) -> Losses:
        with self._recorder.computing_loss(self._model.parameters.values()):
            return self._model.losses(
                step=step,
                micro_batch=micro_batch,
                using=self._using,
                fails=self._fails(step, micro_batch),
                as_rank=self._recorder.as_rank(),
            )

    @contextmanager
    def _using(self, name: str) -> Iterator[None]:
        parameter = self._model.parameters[name]
        with self._streams.using(name), self._recorder.computing_loss([parameter]):
            yield

    def _fails(self, step: int, micro_batch: int) -> bool:
        last = agenda.num_agreed(self._scenario, step) - 1
        is_planned = self._scenario.event(step) == "raise_in_backward"
        return is_planned and micro_batch == last

    @contextmanager
    def _calling(
        self, phase: Phase, step: int, micro_batch: int | None = None
    ) -> Iterator[None]:
        moment = Moment(phase, step, micro_batch)
        try:
            with self._recorder.calling(moment):
                yield
        except SyncverifyError:
            raise  # the harness speaks, through the subject's call
        except (Exception, SystemExit) as error:  # an exit ends a rank like any other
            raise SubjectRaisedError(moment, error) from error

    def _observe(self, point: str, step: int, micro_batch: int | None = None) -> None:
        local = self._model.local_gradients()
        if point == "reduced":  # as an optimizer does, for whom gradients are made
            self._recorder.read("optimizer", local.values())
        copies = {
            name: local[name].cpu().clone() if name in local else None
            for name in self._model.parameters
        }
        self._result.observations.append(
            Observation(point, step, micro_batch, copies)  # type: ignore[arg-type]  # literals above
        )


def _backward(compute_loss: Callable[[], torch.Tensor]) -> None:
    compute_loss().backward()
