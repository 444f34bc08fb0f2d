"""models/steps_1ms.py behind Triton's Python backend: a decoupled model, written in two ways.

`threads` is written as in Triton's documents: each request has a thread, which sends its parts. Its
steps are its own, and those of several requests overlap: no other form in the comparison may do so.
`loop` has one thread, which starts a step for all requests together. While the step runs, it sends
the parts of the step before, as with a device that works on its own.
"""

import json
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as triton


def send(sender: Any, number: int, parts: int) -> None:
    """Send a request's next part; the last one says that it is."""
    response = triton.InferenceResponse([triton.Tensor("number", np.array([number], np.int64))])
    last = number + 1 == parts
    sender.send(response, flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL if last else 0)


class Threads:
    """A thread for each request."""

    def __init__(self, places: int) -> None:
        self._places = threading.BoundedSemaphore(places)

    def join(self, sender: Any, parts: int) -> None:
        """Begin a request."""
        threading.Thread(target=self._count, args=(sender, parts)).start()

    def _count(self, sender: Any, parts: int) -> None:
        with self._places:
            for number in range(parts):
                time.sleep(0.001)
                send(sender, number, parts)

    def end(self) -> None:
        """Leave the threads to their ends: the interpreter waits for them."""


class Loop:
    """One thread for all requests."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._joining: queue.SimpleQueue[tuple[Any, int] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self, sender: Any, parts: int) -> None:
        """Have a request join before the next step."""
        self._joining.put((sender, parts))

    def end(self) -> None:
        """End the thread, once no request is under way."""
        self._joining.put(None)
        self._thread.join()

    def _run(self) -> None:
        rows: list[list[Any]] = []
        made: list[tuple[Any, int, int]] = []
        while True:
            while not (rows or made) or (len(rows) < self._places and not self._joining.empty()):
                joined = self._joining.get()
                if joined is None:
                    return
                rows.append([*joined, 0])
            ends = time.monotonic() + 0.001
            for part in made:
                send(*part)
            if rows:
                time.sleep(max(ends - time.monotonic(), 0))
            made = [(sender, number, parts) for sender, parts, number in rows]
            for row in rows:
                row[2] += 1
            rows = [row for row in rows if row[2] < row[1]]


FORMS = {"threads": Threads, "loop": Loop}


class TritonPythonModel:
    """The class by whose name Triton finds a model; its form is the model's name."""

    def initialize(self, args: dict[str, str]) -> None:
        """Begin without requests."""
        places = json.loads(args["model_config"])["parameters"]["places"]["string_value"]
        self._form = FORMS[args["model_name"]](int(places))

    def execute(self, requests: Sequence[Any]) -> None:
        """Let requests join, and return before they are answered."""
        for request in requests:
            parts = triton.get_input_tensor_by_name(request, "n").as_numpy()[0]
            self._form.join(request.get_response_sender(), int(parts))

    def finalize(self) -> None:
        """End what still runs."""
        self._form.end()
