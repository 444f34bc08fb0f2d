"""Ray actor that holds one model for a worker.

The worker that drives it may be gone at any time, and another of the same name may come. So an
actor ends calls that run too long, and ends itself if no worker has come for long.
"""

import faulthandler
import logging
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ringbatch.engine.models.model import (
    InvalidInput,
    Model,
    Options,
    RestartWorker,
    error_text,
    failure,
)
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.background import essential_thread
from ringbatch.shm.host.distribution import installed_version
from ringbatch.shm.host.process import STDERR

ANSWERED: Final = "answered"
RAISED: Final = "raised"
REFUSED: Final = "refused"
EMPTY: Final = "empty"
"""Error of an actor that holds no model, as it was started again."""

_TICK_S: Final = 0.5

Reply = tuple[Any, ...]
"""Outcome of a call, and its values."""

Opener = Callable[[str, Path, Options], Model]
"""The function that opens any model file: `ringbatch.engine.runtimes.opening.open_model`."""


@dataclass(frozen=True, slots=True)
class ActorModel:
    """Description of the model that an actor holds.

    Attributes:
        path: of the file on the worker's host.
        loader: the runtime that loads it.
        options: of that runtime.
        limit_s: time limit of opening, and of loading.
        open_model: opens it there; a module-level function, as Ray sends functions by name.
    """

    path: str
    loader: str
    options: dict[str, Any]
    limit_s: float
    open_model: Opener


class Overseer:
    """Watchdog that ends calls that run for too long, and actors without a worker.

    Args:
        end_process: ends the process, so that the actor starts again.
        end_actor: ends the actor for good.
        clock_ns: the monotonic clock.
    """

    def __init__(
        self,
        end_process: Callable[[], object],
        end_actor: Callable[[], object],
        clock_ns: Callable[[], int],
    ) -> None:
        self.keep_s = 0.0
        self._end_process = end_process
        self._end_actor = end_actor
        self._clock_ns = clock_ns
        self._until_ns: int | None = None
        self._seen_ns = clock_ns()

    def begins(self, limit_s: float) -> None:
        """Note that a call begins, with its time limit."""
        self._until_ns = self._clock_ns() + int(limit_s * 1e9)

    def ends(self) -> None:
        """Note that the call is over."""
        self._until_ns = None
        self._seen_ns = self._clock_ns()

    def look(self) -> None:
        """End the process or the actor, if its time is over."""
        now_ns, until_ns = self._clock_ns(), self._until_ns
        if until_ns is not None:
            if now_ns > until_ns:
                self._end_process()
        elif self.keep_s and now_ns - self._seen_ns > self.keep_s * 1e9:
            self._end_actor()

    @property
    def idle_s(self) -> float:
        """Seconds since the last call."""
        return (self._clock_ns() - self._seen_ns) / 1e9


class Holder:
    """Holder of one model. Calls return the model's result or error; only its own errors reach Ray.

    Args:
        digest: of the model that it is to hold.
    """

    def __init__(self, digest: str) -> None:
        self._digest = digest
        self._model: Model | None = None
        self._loaded = False
        self._copies = False
        self._worker = self._host = ""
        self._fds: list[int] = []
        self._overseer = Overseer(_end_process, _end_actor, time.monotonic_ns)

    def hello(self, worker: str, host: str, keep_s: float) -> dict[str, Any]:
        """Let a worker take the actor over.

        All values are plain, as the worker may have another version of ringbatch.

        Args:
            worker: another name each time.
            host: of the worker.
            keep_s: how long to wait for another one.
        """
        before, self._host, self._worker = self._host, host, worker
        self._overseer.keep_s = keep_s
        self._overseer.ends()
        return self.about() | {"host_before": before}

    def about(self) -> dict[str, Any]:
        """Return a description of the model and of the worker that drives it."""
        return {
            "ringbatch": installed_version(),
            "digest": self._digest,
            "opened": self._model is not None,
            "loaded": self._loaded,
            "node": socket.gethostname(),
            "node_id": _node_id(),
            "pid": os.getpid(),
            "host": self._host,
            "idle_s": self._overseer.idle_s,
        }

    def open(self, description: ActorModel, content: Any) -> Reply:
        """Open its model, unless it is open, and return its inputs and outputs.

        Args:
            description: of the model, and how to open it.
            content: of the file, as bytes in an array.
        """
        self._overseer.begins(description.limit_s)
        try:
            if self._model is None:
                self._model = self._opened(description, content)
        except StartupError as error:
            return REFUSED, str(error)
        finally:
            self._overseer.ends()
        return ANSWERED, _plain(self._model.inputs), _plain(self._model.outputs)

    def _opened(self, description: ActorModel, content: Any) -> Model:
        fd = os.memfd_create(os.path.basename(description.path)[:200], os.MFD_CLOEXEC)
        self._fds.append(fd)
        with os.fdopen(os.dup(fd), "wb") as kept:
            kept.write(content)
        options = Options(**description.options, content=Path(f"/proc/self/fd/{fd}"))
        model = description.open_model(description.loader, Path(description.path), options)
        if model.asks:
            raise StartupError(
                f"{description.path}: predict takes request, but actors on Ray do not get what "
                "requests say; serve it with workers on this host"
            )
        if model.in_parts:
            raise StartupError(
                f"{description.path}: the model answers in parts, but actors on Ray return whole "
                "answers; serve it with workers on this host"
            )
        return model

    def load(self, description: ActorModel) -> Reply:
        """Load the model, unless it is loaded."""
        if self._model is None:
            return (EMPTY,)
        self._overseer.begins(description.limit_s)
        try:
            if not self._loaded:
                self._model.load()
        except RestartWorker:
            raise
        except BaseException as error:
            traceback.print_exc()
            return REFUSED, failure(description.path, error, "load()")
        finally:
            self._overseer.ends()
        self._loaded = True
        return (ANSWERED,)

    def predict(self, limit_s: float, *arrays: Any) -> Reply:
        """Run the model, and return its result or its error."""
        if self._model is None or not self._loaded:
            return (EMPTY,)
        self._overseer.begins(limit_s)
        try:
            returned = self._run(self._model.predict, arrays)
        except RestartWorker:
            raise
        except BaseException as error:
            return RAISED, *_kind(error), error_text(error), traceback.format_exc()
        finally:
            self._overseer.ends()
        return ANSWERED, returned

    def _run(self, predict: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """Return a model's result.

        Large arrays are in Ray's read-only memory. A model that writes to its inputs gets copies,
        from then on at once.
        """
        if not self._copies:
            try:
                return predict(*arrays)
            except ValueError as error:
                if not _is_write(error) or all(map(_is_writable, arrays)):
                    raise
            self._copies = True
        return predict(*(array if _is_writable(array) else array.copy() for array in arrays))

    def kept(self) -> bool:
        """Note that the worker is there, and return whether the model is."""
        self._overseer.ends()
        return self._loaded

    def leave(self, worker: str) -> bool:
        """Release the actor from a worker; return whether no other worker has taken it over."""
        return worker == self._worker


class HolderActor(Holder):
    """The holder as Ray runs it, alone in its process: any error of its own ends the process.

    Args:
        digest: as of `Holder`.
    """

    def __init__(self, digest: str) -> None:
        super().__init__(digest)
        # What a model logs goes to the log of the actor, which Ray keeps.
        logging.basicConfig(level=logging.INFO, stream=sys.stderr)
        essential_thread("the overseer of batches", self._oversee)

    def open(self, description: ActorModel, content: Any) -> Reply:
        """As in `Holder`, with a command line for the model in place of Ray's."""
        sys.argv = [description.path]
        return super().open(description, content)

    def _oversee(self) -> None:
        while True:
            time.sleep(_TICK_S)
            self._overseer.look()


def _plain(tensors: Sequence[Any]) -> list[dict[str, Any]]:
    return [tensor.to_json() for tensor in tensors]


def _kind(error: BaseException) -> tuple[str, str]:
    """Return module and name of an error's class, by which the worker raises it again."""
    for known in (InvalidInput, MemoryError):
        if isinstance(error, known):
            return known.__module__, known.__name__
    return type(error).__module__, type(error).__name__


def _is_write(error: ValueError) -> bool:
    return "read-only" in error_text(error)


def _is_writable(array: Any) -> bool:
    return getattr(getattr(array, "flags", None), "writeable", True)


def _node_id() -> str:
    """Return Ray's id of the node; empty outside an actor."""
    ray = sys.modules.get("ray")
    found: str = ray.get_runtime_context().get_node_id() if ray and ray.is_initialized() else ""
    return found


def _end_process() -> None:
    """End the process, as a call runs for too long; Ray starts it again, without a model."""
    faulthandler.dump_traceback(STDERR, all_threads=True)
    os._exit(1)


def _end_actor() -> None:
    """End the actor, as no worker has come for it."""
    ray = sys.modules["ray"]
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
