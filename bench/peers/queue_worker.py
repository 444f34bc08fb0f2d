"""The same model in a process that is reached through two `multiprocessing.Queue`s."""

import importlib.util
import multiprocessing
import queue
from multiprocessing.queues import Queue
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from host.children import end_with_parent
from numpy.typing import NDArray

Floats = NDArray[np.float32]


class QueueWorker:
    """A process that answers each array put to it, many at a time where many wait.

    Args:
        model: a model file with one input and one output.
        cap: the most requests that it puts together.
    """

    def __init__(self, model: Path, cap: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._requests: Queue[Any] = context.Queue()
        self._answers: Queue[Any] = context.Queue()
        arguments = (str(model), cap, self._requests, self._answers)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._requests.put(None)
        self._process.join()

    def infer(self, instance: Floats) -> Floats:
        """Send one request and wait for its answer."""
        self._requests.put(instance)
        answer: Floats = self._answers.get()
        return answer

    def infer_many(self, instances: Floats, window: int) -> Floats:
        """Send each row as a request of its own, so many at a time, and wait for all answers."""
        sent = 0
        answers: list[Floats] = []
        while len(answers) < len(instances):
            while sent < len(instances) and sent - len(answers) < window:
                self._requests.put(instances[sent])
                sent += 1
            answers.append(self._answers.get())
        return np.stack(answers)


def _serve(model: str, cap: int, requests: "Queue[Any]", answers: "Queue[Any]") -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "another process has started this one"
    assert parent.pid is not None
    end_with_parent(parent.pid)
    spec = importlib.util.spec_from_file_location("model", model)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    while (first := requests.get()) is not None:
        batch = [first]
        try:
            while len(batch) < cap:
                following = requests.get_nowait()
                if following is None:
                    requests.put(None)
                    break
                batch.append(following)
        except queue.Empty:
            pass
        for answer in module.predict(np.stack(batch)):
            answers.put(answer)
