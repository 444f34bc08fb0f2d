"""A process that runs LoadGen and sends its queries through shared memory, by a Client."""

import select
import sys
import threading
import time
from concurrent.futures import Future
from typing import Any, Final

from ringbatch.bench.client.calls import Arrays, status_of
from ringbatch.bench.client.role import inputs_of
from ringbatch.bench.load.outcome import BROKEN
from ringbatch.bench.load.role import follow
from ringbatch.bench.loadgen import driver
from ringbatch.bench.loadgen.answers import text_of_arrays
from ringbatch.bench.loadgen.handover import Handover
from ringbatch.bench.loadgen.judgement import Sent
from ringbatch.bench.loadgen.order import Order, packed
from ringbatch.bench.loadgen.queries import Queries
from ringbatch.bench.loadgen.role import SWITCH_S
from ringbatch.frontend import Client, RequestError, StartupError

_ANSWERED: Final = 200
_LOOK_S: Final = 0.02
"""At least so often it is looked whether what has no answer is to be given up."""


def run(order: Order) -> Sent:
    """Run LoadGen once, and send what it asks for through shared memory."""
    handover = Handover(order.rest_s)
    try:
        with Client(order.target.engine) as client:
            return _Sender(order, client, handover).run()
    except StartupError as error:
        return Sent({BROKEN: 1}, {str(error): 1}, 0.0, 0.0, 0)
    finally:
        handover.close()


class _Sender:
    """One thread sends what LoadGen issues; whichever thread finds an answer notes it.

    Args:
        order: of the run.
        client: through which queries go.
        handover: from LoadGen's thread to this one.
    """

    def __init__(self, order: Order, client: Client, handover: Handover) -> None:
        self._order, self._client, self._handover = order, client, handover
        self._inputs: list[Arrays] = inputs_of(order.requests.messages)
        self._queries = Queries(driver.complete)
        self._problems: dict[str, int] = {}
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, int]] = []
        """Numbers and samples of queries that may not be sent yet, the last one first."""
        self._in_flight = 0
        self._held_back = 0

    def run(self) -> Sent:
        """Run LoadGen once."""
        order, handover, queries = self._order, self._handover, self._queries
        thread = driver.begin(order.plan, order.folder, handover)
        while not handover.over:
            self._take()
            self._send()
            self._sleep()
            with self._lock:
                if (flushed_ns := handover.flushed_ns) is not None:
                    give_up_ns = flushed_ns + order.patience_ns
                    queries.finish(time.monotonic_ns(), flushed_ns + order.late_ns, give_up_ns)
        thread.join()
        with self._lock:
            return queries.sent(self._problems, self._held_back)

    def _take(self) -> None:
        """Take what LoadGen has issued."""
        begun = []
        for issued in self._handover.take():
            with self._lock:
                for query, sample in zip(issued.ids, issued.samples, strict=True):
                    now = time.monotonic_ns()
                    begun.append((self._queries.begin(query, issued.at_ns, now), sample))
        if begun:
            self._waiting[:0] = reversed(begun)

    def _send(self) -> None:
        """Send as many as may be in flight."""
        while self._waiting:
            with self._lock:
                if self._in_flight >= self._order.connections:
                    self._held_back = max(self._held_back, len(self._waiting))
                    return
                self._in_flight += 1
            number, sample = self._waiting.pop()
            self._call(number, self._inputs[sample % len(self._inputs)])

    def _call(self, number: int, inputs: Arrays) -> None:
        try:
            future = self._client.infer_async(self._order.target.model, inputs)
        except RequestError as error:
            self._ended(number, status_of(error), str(error), b"")
        else:
            future.add_done_callback(lambda found: self._found(number, found))

    def _found(self, number: int, future: Future[Any]) -> None:
        """In whichever thread found the answer."""
        error = future.exception()
        if error is None:
            keeps = self._order.keeps_answers
            answer = text_of_arrays(future.result()) if keeps else b""
            self._ended(number, _ANSWERED, "", answer)
        elif isinstance(error, RequestError):
            self._ended(number, status_of(error), str(error), b"")
        else:
            raise error

    def _ended(self, number: int, status: int, problem: str, answer: bytes) -> None:
        now = time.monotonic_ns()
        with self._lock:
            self._in_flight -= 1
            if status == BROKEN:
                self._problems[problem] = self._problems.get(problem, 0) + 1
            self._queries.end(number, status, now, answer)
            self._queries.tell()
            is_last = self._handover.flushed_ns is not None and not self._queries.under_way
        if is_last or self._waiting:
            self._handover.wake()

    def _sleep(self) -> None:
        """Wait until there is something to do."""
        handover = self._handover
        if handover.may_sleep():
            select.select([handover.fd], (), (), _LOOK_S)
            handover.drain()
        handover.awake()


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_S)
    # A program's threads have no precedence over the engine, whose answers they watch for.
    sys.exit(follow(lambda frames: packed(run(Order.unpacked(frames))), before_others=False))
