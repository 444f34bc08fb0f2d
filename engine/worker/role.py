"""The worker process: holds one instance of a model and runs batches.

The supervisor starts it as ``python -m ringbatch.engine.worker.role``, and sends its settings as
one message on the control socket. The worker opens the model file and reports the model's inputs
and outputs. Once it knows the segment, it loads the model and takes tasks.
"""

import argparse
import faulthandler
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn, TextIO, TypeVar

from ringbatch.engine.devices.cuda_uuid import cuda_uuid
from ringbatch.engine.models.model import Model, Options, RestartWorker, error_text, failure
from ringbatch.engine.models.model_file import HeldFile
from ringbatch.engine.process import memory_limits, placement
from ringbatch.engine.process import startup as process
from ringbatch.engine.process.control_socket import ControlSocket
from ringbatch.engine.process.role_commands import (
    ATTACH_SEGMENT,
    DISMISS,
    START_WORKER,
    Parity,
    StartWorker,
    WarmUp,
)
from ringbatch.engine.process.role_events import (
    LOST_STATUS,
    MUTE_STATUS,
    FailsAll,
    ParityCompared,
    Signature,
    WaitsForPlace,
    WarmUpStarted,
)
from ringbatch.engine.runtimes.opening import open_model
from ringbatch.engine.worker.device_runner import DeviceRunner
from ringbatch.engine.worker.device_worker import DeviceWorker
from ringbatch.engine.worker.failure_detection import Failing
from ringbatch.engine.worker.fork_guard import ForkGuard
from ringbatch.engine.worker.forwarder import Forwarder
from ringbatch.engine.worker.metrics_block import count_in, expect_no_clash, warm_up_unseen
from ringbatch.engine.worker.on_device import OnDevice, placed
from ringbatch.engine.worker.parity_run import compare
from ringbatch.engine.worker.parts_runner import PartsRunner
from ringbatch.engine.worker.runner import Runner
from ringbatch.engine.worker.runner_choice import runner_for
from ringbatch.engine.worker.shaped_model import ShapedModel, expect_steps_fit, shaped
from ringbatch.engine.worker.steps_runner import StepsRunner
from ringbatch.engine.worker.steps_worker import StepsWorker
from ringbatch.engine.worker.warmup import Wanted, warmed_up
from ringbatch.engine.worker.worker import Worker
from ringbatch.shm import cost_profile, device_notes, device_pace
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.device_pace import NO_PACE
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.messages import Failed, Ready, Vocabulary
from ringbatch.shm.host.process import STDERR, die_with_parent, settle
from ringbatch.shm.memory_order import store_release
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.segment import Segment
from ringbatch.shm.upstreams import OwnUpstreams

logger = logging.getLogger("ringbatch.worker")

M = TypeVar("M")

_MESSAGES_WITHIN_S: Final = 0.2
"""Seconds in which messages are read that were sent before a signal."""


def main() -> int:
    """Run a worker until the supervisor ends it."""
    parser = argparse.ArgumentParser(prog="ringbatch worker")
    parser.add_argument("--control-fd", type=int, required=True)
    control = ControlSocket.from_fd(parser.parse_args().control_fd)
    start = _next(control, START_WORKER)
    process.begin(f"worker {start.title}", start.log_level, control)
    # The supervisor ends a worker that hangs with SIGABRT; this writes down what each thread does.
    faulthandler.enable()
    memory_limits.go_first()
    held = start.model
    memory_limits.limit_memory(held.worker_memory_bytes)
    path = held.path if held.runtime == "http" else Path(held.path)
    # A model that parses its command line finds none of ringbatch's own arguments there.
    sys.argv = [held.path]
    try:
        die_with_parent(start.parent_pid)
        opened = _opened(path, start, control)
        try:
            served = shaped(opened, path, held.shape)
            control.send(_signature(served.model))
            segment = Segment.attach(_next(control, ATTACH_SEGMENT).segment)
            count_in(segment, start.number)
            _load(served.model, path, segment, start.number)
            if not control.is_open:
                # Nor has the log its descriptor. The supervisor knows what the status means.
                os._exit(MUTE_STATUS)
            expect_no_clash(segment, start.number, path)
            _serve(segment, start, served, control)
        except StartupError:
            opened.release(True)
            raise
    except StartupError as error:
        return _report(control, str(error))
    except RestartWorker as lost:
        why = " ".join(error_text(lost).split()) or "the model asks for another process"
        # What lets go of a device in order aborts, as the device answers no more.
        os._exit(_report(control, why))
    except Exception as fault:
        # Python would say it on sys.stderr, which may be the model's by now.
        logger.critical("the worker failed", exc_info=True)
        # A model may have closed the socket, or replaced the modules that write the message.
        with suppress(Exception):
            return _report(control, f"the worker failed: {error_text(fault)}; the log has more")
        return MUTE_STATUS
    return 0


def _report(control: ControlSocket, why: str) -> int:
    """Send the supervisor the reason of this process's end, and return the exit status."""
    if control.send(Failed(why)):
        return 1
    logger.critical("%s", why)
    return MUTE_STATUS


def _signature(model: Model) -> Signature:
    tokens = model.tokens
    inputs = model.inputs if tokens is None else tokens.inputs
    if model.asks and inputs:
        inputs = inputs[:-1]
    return Signature(
        inputs,
        model.outputs,
        tokens,
        model.asks,
        model.in_parts,
        model.in_steps,
        model.generator,
        model.resumes,
        model.numbered,
    )


def _opened(path: Path | str, start: StartWorker, control: ControlSocket) -> Model:
    """Open the model, from the content that all workers of its version have."""
    kept, configured = (
        HeldFile(start.file.fd, start.file.stamp, start.file.copied),
        start.model.options,
    )
    kept.keep_from_children()
    content = kept.content(path)
    if content is not None:
        logger.warning(
            "%s: the file was changed or removed since it was loaded; what was loaded is served "
            "until ringbatch reload",
            path,
        )
    options = Options(
        **{field.name: getattr(configured, field.name) for field in fields(configured)},
        threads=placement.threads(os.environ) if configured.ray is None else configured.ray.threads,
        name=start.model.name,
        content=content,
        lost=partial(_lost, control),
        waits=lambda: control.send(WaitsForPlace()),
    )
    model = open_model(start.model.runtime, path, options)
    if content is None and kept.content(path) is not None:
        raise StartupError(f"{path}: was changed while it was read; start again")
    return model


def _lost(control: ControlSocket, why: str, blames_batch: bool) -> NoReturn:
    """End at once, as what holds the model elsewhere is gone."""
    control.send(Failed(why))
    os._exit(1 if blames_batch else LOST_STATUS)


def _load(model: Model, path: Path | str, segment: Segment, number: int) -> None:
    _publish_state(segment, number, WorkerState.LOADING)
    fork_guard = ForkGuard()
    try:
        model.load()
        fork_guard.check()
    except RestartWorker:
        raise
    except BaseException as error:
        fork_guard.check(error)
        logger.error("load() raised", exc_info=error)
        raise StartupError(failure(path, error, "load()")) from error


def _warm_up(
    segment: Segment,
    spec: ModelSpec,
    runner: Runner,
    start: StartWorker,
    wanted: WarmUp,
    control: ControlSocket,
    failing: Failing,
) -> None:
    number = start.number

    def try_out(values: Any, rows: int) -> int:
        took_ns = runner.try_out(values, rows)
        failing.sample = failing.sample or partial(_try_out_unseen, runner, values, rows)
        return took_ns

    _publish_state(segment, number, WorkerState.WARMING)
    control.send(WarmUpStarted())
    tried = warmed_up(
        spec,
        try_out,
        Wanted(
            required=wanted.required,
            limit_s=wanted.limit_s,
            limit=wanted.limit,
            batch_timeout=wanted.batch_timeout,
            length=wanted.length,
            file=Path(wanted.file) if wanted.file else None,
        ),
        path=Path(start.model.path),
        title=start.title,
        out=_terminal() if number == spec.workers[0] else None,
        clock_ns=time.monotonic_ns,
    )
    if len(tried) >= len(cost_profile.read(segment, number)):
        # One that takes the place of another tries less; what that has measured still holds.
        cost_profile.write(segment, number, tried)


def _try_out_unseen(runner: Runner, values: Any, rows: int) -> None:
    with warm_up_unseen():
        runner.try_out(values, rows)


def _terminal() -> TextIO | None:
    """Return the terminal at standard error, if there is one; `sys.stderr` may be the model's."""
    return open(STDERR, "w", closefd=False) if os.isatty(STDERR) else None


def _serve(
    segment: Segment, start: StartWorker, served: ShapedModel, control: ControlSocket
) -> None:
    """Run batches until a signal asks to stop."""
    number, model, shape = start.number, served.model, start.model.shape
    lanes = [segment.lane_doorbell(lane) for lane in range(segment.layout.lanes)]
    slots = EngineSlots(segment, number, lambda lane: lanes[lane].wake())
    (spec,) = (spec.in_slots for spec in segment.models if number in spec.workers)
    if model.in_steps:
        expect_steps_fit(spec, start.model.path, shape)
    on_device = _placed(model, spec, segment, start)
    failing = Failing(spec.name, partial(_report_failing, segment, number, control))
    worker: Worker
    runner = runner_for(
        served,
        spec,
        shape,
        segment,
        slots,
        on_device,
        lambda batch: worker.runs_again(batch),
        failing,
    )
    _warm_up_and_compare(segment, spec, runner, start, control, failing)
    servers = OwnUpstreams(segment.words, segment.layout, number)
    servers.begin()
    if model.share is not None:
        model.share(servers)
    worker = _worker_of(runner, segment, number, slots)
    doorbell = segment.worker_doorbell(number)
    stopping = process.stop_on_sigterm(doorbell.wake)
    dismissed = threading.Event()
    process.watch(control, DISMISS, lambda _: dismissed.set(), lambda: os._exit(1))
    settle()
    paced = on_device if isinstance(runner, DeviceRunner) else None
    device_pace.write(segment, number, NO_PACE if paced is None else paced.pace)
    segment.words[segment.layout.worker(number) + WorkerWords.MODEL] = spec.reference
    _publish_state(segment, number, WorkerState.READY)
    worker.begin()
    control.send(Ready())
    while not stopping:
        worker.step()
        doorbell.wait(worker.wait_s())
    if isinstance(worker, DeviceWorker):
        worker.finish_begun()
    if start.model.options.ray:
        # What fails every request elsewhere is of no use to the next worker.
        model.release(failing.found or dismissed.wait(_MESSAGES_WITHIN_S))
    else:
        if on_device is not None:
            on_device.run.close()
        model.release(False)


def _warm_up_and_compare(
    segment: Segment,
    spec: ModelSpec,
    runner: Runner | Forwarder,
    start: StartWorker,
    control: ControlSocket,
    failing: Failing,
) -> None:
    """Warm the model up, and compare its answers alone and in company, as far as that is asked."""
    warm_up, parity = start.model.warm_up, start.model.parity
    if isinstance(runner, Runner) and warm_up is not None:
        with warm_up_unseen():
            _warm_up(segment, spec, runner, start, warm_up, control, failing)
    elif parity is not None:
        control.send(WarmUpStarted())
    if parity is not None:
        control.send(_compared(start, spec, runner, parity))


def _worker_of(
    runner: Runner | Forwarder, segment: Segment, number: int, slots: EngineSlots
) -> Worker:
    """Return the worker that steps a runner, with the scheduling that its waits need."""
    wake = segment.collector_doorbell().wake
    if isinstance(runner, PartsRunner):
        placement.wake_preempting()
        placement.shorten_slices()
    if isinstance(runner, StepsRunner):
        placement.wake_on_time()
        return StepsWorker(segment, number, runner, slots, wake, time.monotonic_ns)
    if isinstance(runner, DeviceRunner):
        placement.wake_preempting()
        placement.wake_on_time()
        return DeviceWorker(segment, number, runner, slots, wake, time.monotonic_ns)
    return Worker(segment, number, runner, slots, wake, time.monotonic_ns)


def _placed(model: Model, spec: ModelSpec, segment: Segment, start: StartWorker) -> OnDevice | None:
    """Place the model on its device, if it has one, and leave a note of that for people."""
    options = start.model.options
    with warm_up_unseen():
        on_device = placed(
            model,
            spec,
            segment.memory,
            segment.layout.payload_byte,
            path=start.model.path,
            graphs=options.cuda_graphs,
            warm=start.model.warm_up is not None,
            clock_ns=time.monotonic_ns,
        )
    note = "" if on_device is None else on_device.note
    uuid = 0 if options.ray else cuda_uuid(options.device)
    device_notes.write(segment, start.number, note, uuid)
    return on_device


def _compared(
    start: StartWorker, spec: ModelSpec, runner: Runner | Forwarder, wanted: Parity
) -> ParityCompared:
    path = start.model.path
    if isinstance(runner, Forwarder):
        raise StartupError(
            f"{path}: answers over V1 are another server's, and passed on as they are; there is "
            "nothing to compare here"
        )
    if spec.tokens is not None and wanted.file:
        raise StartupError(
            f"{path}: texts become tokens before they come to a worker; give --parity no file, and "
            "tokens are made up"
        )
    return compare(spec, runner.answers, wanted, path)


def _report_failing(
    segment: Segment, number: int, control: ControlSocket, batches: int, why: str, for_ns: int
) -> None:
    segment.words[segment.layout.worker(number) + WorkerWords.FAILING] = batches
    if batches:
        control.send(FailsAll(batches, why, for_ns))


def _publish_state(segment: Segment, number: int, state: WorkerState) -> None:
    words, first = segment.words, segment.layout.worker(number)
    words[first + WorkerWords.PID] = os.getpid()
    store_release(words, first + WorkerWords.STATE, state)


def _next(control: ControlSocket, expected: Vocabulary[M]) -> M:
    message = control.receive(expected)
    if message is None:
        raise SystemExit(1)
    return message


if __name__ == "__main__":
    sys.exit(main())
