"""The ray runtime: an actor in a Ray cluster holds a model file, and a worker here drives it.

The actor is named, and outlives the worker: the next worker finds it with its model loaded. It gets
whole batches, one at a time, as arrays. If it dies, hangs or cannot be reached, the worker ends,
and reports why. The worker's requests run again elsewhere, and its replacement finds the actor that
Ray has restarted.
"""

import logging
import os
import signal
import socket
import sys
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from ringbatch.engine.models.extras import required
from ringbatch.engine.models.model import InvalidInput, Model, Options
from ringbatch.engine.models.ray_place import RayPlace
from ringbatch.engine.runtimes.ray.actor import (
    ANSWERED,
    EMPTY,
    REFUSED,
    ActorModel,
    HolderActor,
    Opener,
)
from ringbatch.engine.runtimes.ray.terms import (
    ActorName,
    another_version,
    digest,
    lost,
    refused,
    waiting,
)
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.background import repeating_thread
from ringbatch.shm.host.distribution import installed_version
from ringbatch.shm.tensor import Tensor

logger = logging.getLogger("ringbatch.worker")

_PING_S: Final = 10.0
_LEAST_KEEP_S: Final = 6 * _PING_S
"""Shortest time that an actor waits for its worker."""
_LOOK_S: Final = 2.0
_LOG_AGAIN_S: Final = 60.0
_AGAIN_S: Final = 0.2
_MARGIN: Final = 0.8
"""Share of the supervisor's time limit, so that the worker first reports the cause of its wait."""
_CONNECT_S: Final = 5.0
_CALLED_OFF_S: Final = 10.0
_NOT_SENT: Final = {"content", "ray", "lost", "waits", "protocol", "timeout_s", "isolate_errors"}
_BLIND_TO_SIZE: Final = ("python", "sklearn")


def open_ray(path: Path, options: Options, open_model: Opener) -> Model:
    """Open a model file in an actor.

    Args:
        path: of the file on this host.
        options: of the runtime that loads it there.
        open_model: opens it there.

    Raises:
        StartupError: the cluster, the actor or the model file cannot be used.
    """
    ray = required("ray", "ray", path)
    assert options.ray is not None, "the options of this runtime say where"
    # Ray prints a message there for every node that goes; no other code writes there.
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    connect(ray, options.ray.address, options.ray.namespace, str(path))
    driver = _Driver(ray, path, options, options.ray, open_model)
    inputs, outputs = driver.open()
    return Model(inputs, outputs, driver.load, driver.predict, release=driver.release)


def connect(ray: Any, address: str, namespace: str, subject: str) -> None:
    """Connect this process to a cluster, as a driver.

    Args:
        ray: the module.
        address: HOST:PORT, or ``auto`` for the cluster that this host belongs to.
        namespace: of the actors.
        subject: the beginning of messages.

    Raises:
        StartupError: there is no cluster, or it cannot be used.
    """
    # uvloop, a dependency of ringbatch, breaks Ray's event loops.
    os.environ.setdefault("RAY_USE_UVLOOP", "0")
    before = signal.getsignal(signal.SIGTERM)
    try:
        if address != "auto":
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), _CONNECT_S).close()
        ray.init(
            address=address,
            namespace=namespace,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
        )
    except OSError as error:
        reason = error.strerror or str(error)
        raise StartupError(
            f"{subject}: no Ray cluster at ray_address = {address}: {' '.join(reason.split())}; "
            "ray start --head starts one"
        ) from None
    except (ray.exceptions.RayError, RuntimeError, ValueError) as error:
        text = " ".join(str(error).split())
        raise StartupError(
            f"{subject}: the Ray cluster at {address} cannot be used: {text}; this host must be a "
            "node of it (ray start), with the same Ray and the same Python"
        ) from None
    finally:
        # Ray has set a handler of its own.
        signal.signal(signal.SIGTERM, before)


class _Driver:
    """Driver of one actor.

    Args:
        ray: the module, connected.
        path: of the model file.
        options: of the model.
        place: of the actor.
        open_model: opens the file in the actor.

    Raises:
        StartupError: the file cannot be read.
    """

    def __init__(
        self, ray: Any, path: Path, options: Options, place: RayPlace, open_model: Opener
    ) -> None:
        self._ray = ray
        self._errors = (ray.exceptions.RayError, OSError, RuntimeError, ValueError)
        self._path = path
        self._options = options
        self._place = place
        self._limit_s = _MARGIN * place.load_timeout_s
        own = _own_options(options)
        self._description = ActorModel(
            str(path), place.loader, own, place.load_timeout_s, open_model
        )
        self._content = np.asarray(np.memmap(options.readable(path), np.uint8, "r"))
        known = own | {"file": path.name, "needs": place.needs, "scheduling": place.scheduling}
        known |= {"group": place.placement_group, "ringbatch": installed_version()}
        if place.loader in _BLIND_TO_SIZE:
            known["max_batch_size"] = bool(options.max_batch_size)
        self._name = ActorName(
            place.engine, options.name, place.version, place.index, digest(self._content, known)
        )
        self._worker = uuid.uuid4().hex
        self._actor: Any = None
        self._released = threading.Event()
        self._logged = ""
        self._log_ns = 0

    def open(self) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Find or make the actor, have it open the model, and return its inputs and outputs.

        Raises:
            StartupError: there is no actor, or the model cannot be opened.
        """
        until_ns = _after_ns(self._limit_s)
        self._log_ns = _after_ns(_LOOK_S)
        while True:
            try:
                self._actor = self._found_or_made()
                about = self._waited_for(self._greeting(), until_ns)
                self._expect_own(about)
                reply = self._asked(self._actor.open, until_ns, self._description, self._content)
                break
            except self._errors as error:
                self._expect_another_try(error, until_ns)
                # An actor whose node has died may fail each call sooner than any wait ends.
                self._log_missing()
                time.sleep(_AGAIN_S)
        state = "found, with the model loaded" if about["loaded"] else "without a model"
        words = "actor %s on %s, process %d, %s"
        logger.info(words, self._name.text, about["node"], about["pid"], state)
        outcome, *found = reply
        if outcome == REFUSED:
            self.release(unwanted=True)
            raise StartupError(found[0])
        del self._content
        inputs, outputs = (tuple(Tensor(**tensor) for tensor in tensors) for tensors in found)
        return inputs, outputs

    def load(self) -> None:
        """Have the actor load the model.

        Raises:
            StartupError: it cannot be loaded.
        """
        try:
            outcome, *found = self._asked(
                self._actor.load, _after_ns(self._limit_s), self._description
            )
        except self._errors as error:
            raise StartupError(f"{self._path}: {self._failure(error)}") from None
        if outcome == REFUSED:
            raise StartupError(found[0])
        if outcome == EMPTY:
            raise StartupError(f"{self._path}: its actor was started again while it loaded")
        repeating_thread("the watch of the actor", self._keep, self._released.wait)

    def predict(self, *arrays: Any) -> Any:
        """Run the batch in the actor and return its results; end this process if it is gone."""
        limit_s = self._options.timeout_s
        try:
            reply = self._ray.get(self._actor.predict.remote(limit_s, *arrays), timeout=limit_s)
        except self._ray.exceptions.GetTimeoutError:
            self._restart()
            why = f"a batch ran longer than batch_timeout_s = {limit_s:g}; its actor starts anew"
            self._options.lost(why, True)
        except self._ray.exceptions.RayError as error:
            self._options.lost(lost(error) or str(error), False)
        if reply[0] == ANSWERED:
            return reply[1]
        if reply[0] == EMPTY:
            self._options.lost("its actor was started again, and holds no model", False)
        raise _raised(*reply[1:])

    def release(self, unwanted: bool) -> None:
        """Release the actor, as the worker ends.

        Args:
            unwanted: True if no other worker will come for the actor.
        """
        self._released.set()
        if self._actor is None or not (unwanted or not self._place.keep_s):
            return
        with suppress(*self._errors):
            # Another worker may have taken it over, as after a reload without a change.
            if self._ray.get(self._actor.leave.remote(self._worker), timeout=_CALLED_OFF_S):
                self._ray.kill(self._actor, no_restart=True)

    def _found_or_made(self) -> Any:
        place = self._place
        strategy: Any = place.scheduling.upper()
        if place.placement_group:
            strategies = required("ray.util.scheduling_strategies", "ray", self._path)
            group = self._ray.util.get_placement_group(place.placement_group)
            strategy = strategies.PlacementGroupSchedulingStrategy(group)
        resources = {k: n for k, n in place.needs.items() if k not in ("CPU", "GPU")}
        return (
            self._ray.remote(HolderActor)
            .options(
                name=self._name.text,
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,
                max_task_retries=0,
                max_concurrency=1,
                num_cpus=place.cpus,
                num_gpus=place.gpus,
                resources=resources,
                scheduling_strategy=strategy,
            )
            .remote(self._name.digest)
        )

    def _greeting(self) -> Any:
        if not hasattr(self._actor, "hello"):
            raise StartupError(f"{self._path}: {self._another('is none of ringbatch')}")
        keep_s = max(self._place.keep_s, _LEAST_KEEP_S)
        return self._actor.hello.remote(self._worker, socket.gethostname(), keep_s)

    def _expect_own(self, about: dict[str, Any]) -> None:
        """Check that the actor has this ringbatch and this model.

        Raises:
            StartupError: it has not.
        """
        if words := another_version(about["ringbatch"], installed_version()):
            self.release(unwanted=True)
            raise StartupError(f"{self._path}: {words}")
        if about["digest"] != self._name.digest:
            raise StartupError(f"{self._path}: {self._another('holds another model')}")
        if about["host_before"] not in ("", socket.gethostname()):
            logger.warning(
                "actor %s was driven from host %s before; if an engine of this name serves there "
                "too, give one of them another name or another ray_namespace",
                self._name.text,
                about["host_before"],
            )

    def _another(self, state: str) -> str:
        return (
            f"the actor {self._name.text} in namespace {self._place.namespace} {state}; end it "
            "with ringbatch actors --end, or set another ray_namespace"
        )

    def _expect_another_try(self, error: Exception, until_ns: int) -> None:
        """Check that a failed call may be tried again.

        Raises:
            StartupError: it may not, or there is no time left.
        """
        if words := refused(error, installed_version()):
            raise StartupError(f"{self._path}: {words}") from None
        if time.monotonic_ns() >= until_ns or not lost(error):
            raise StartupError(f"{self._path}: {self._failure(error)}") from None

    def _failure(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            self._restart()
            return f"{error}; load_timeout_s = {self._place.load_timeout_s:g}"
        return lost(error) or " ".join(str(error).split()) or type(error).__name__

    def _asked(self, method: Any, until_ns: int, *arguments: Any) -> Any:
        return self._waited_for(method.remote(*arguments), until_ns)

    def _waited_for(self, reference: Any, until_ns: int) -> Any:
        """Return the result of a call, and log what it waits for until then.

        Raises:
            TimeoutError: it takes too long; the text says what it waited for.
        """
        ray = self._ray
        while True:
            left_s = max((until_ns - time.monotonic_ns()) / 1e9, 0)
            if ray.wait([reference], timeout=min(left_s, _LOOK_S))[0]:
                return ray.get(reference)
            if left_s == 0:
                raise TimeoutError(waiting(self._place.needs, ray.nodes()))
            self._log_missing()

    def _log_missing(self) -> None:
        """Log why the actor has no place yet: now and then, and when that changes."""
        words = waiting(self._place.needs, self._ray.nodes())
        changed = self._logged not in ("", words)
        if changed or time.monotonic_ns() >= self._log_ns:
            self._logged, self._log_ns = words, _after_ns(_LOG_AGAIN_S)
            logger.warning("%s", words)
            self._options.waits()

    def _restart(self) -> None:
        """Have the actor end its present call, and start again."""
        if self._actor is not None:
            with suppress(*self._errors):
                self._ray.kill(self._actor, no_restart=False)

    def _keep(self) -> bool:
        """Show the actor that its worker is there, and return whether its model is."""
        if self._released.wait(_PING_S):
            return False
        why = "its actor was started again, and holds no model"
        try:
            holds = self._ray.get(self._actor.kept.remote())
        except self._errors as error:
            holds, why = False, lost(error) or str(error)
        # The worker that released the actor may have ended it.
        if not holds and not self._released.is_set():
            self._options.lost(why, False)
        return True


def _own_options(options: Options) -> dict[str, Any]:
    """Return the options of the runtime in the actor."""
    sent = (field.name for field in fields(options) if field.name not in _NOT_SENT)
    return {name: getattr(options, name) for name in sent}


def _after_ns(seconds: float) -> int:
    return time.monotonic_ns() + int(seconds * 1e9)


def _raised(module: str, kind: str, text: str, where: str) -> Exception:
    """Return the exception that a model has raised in its actor, with its text and place."""
    known = {cls.__name__: cls for cls in (InvalidInput, MemoryError, RuntimeError)}
    error: Exception = known.get(kind, type(kind, (Exception,), {"__module__": module}))(text)
    error.__cause__ = _InActor(where)
    return error


class _InActor(Exception):
    """Place of an exception in the actor, for the log."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"
