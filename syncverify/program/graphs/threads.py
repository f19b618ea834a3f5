"""Backwards on threads that the caller starts."""

from __future__ import annotations

import threading

from syncverify.program.graphs.losses import Losses


def on_threads(losses: Losses) -> None:
    """Run the backward of each half of the model on another thread.

    One thread after the other: a simulated rank must not depend on timing.
    """
    names = [*losses.terms]
    for part in (losses.without({*names[1::2]}), losses.without({*names[0::2]})):
        if part.terms:
            _run_on_thread(part)


def _run_on_thread(losses: Losses) -> None:
    errors: list[BaseException] = []
    as_rank = losses.as_rank()

    def run() -> None:
        try:
            with as_rank():
                losses.total().backward()
        except BaseException as error:  # noqa: BLE001  # raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=run, name=threading.current_thread().name)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
