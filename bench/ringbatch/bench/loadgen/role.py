"""A process that runs LoadGen and sends its queries over TCP: orders on standard input."""

import gc
import select
import sys
import time
from collections import deque
from typing import Final

from ringbatch.bench.load.connections import Connections
from ringbatch.bench.load.grpc_call import GrpcCall
from ringbatch.bench.load.http1 import Http1
from ringbatch.bench.load.outcome import BROKEN
from ringbatch.bench.load.role import connections_allowed, follow, traces_of
from ringbatch.bench.load.target import Wire
from ringbatch.bench.loadgen import driver
from ringbatch.bench.loadgen.handover import Handover
from ringbatch.bench.loadgen.judgement import Sent
from ringbatch.bench.loadgen.order import Order, packed
from ringbatch.bench.loadgen.queries import Queries

SWITCH_S: Final = 1e-4
"""Of two threads that take microseconds, one would else hold the interpreter for 5,000 of them."""
_WARM: Final = 32
_AT_ONCE: Final = 64
"""Queries that are sent before answers are looked for again."""
_LOOK_S: Final = 0.02
"""At least so often it is looked whether what has no answer is to be given up."""


def run(order: Order) -> Sent:
    """Run LoadGen once, and send what it asks for."""
    handover = Handover(order.rest_s)
    # What is known to be needed is not collected, and nothing else is made in a circle.
    gc.collect()
    gc.freeze()
    gc.disable()
    with select.epoll() as epoll:
        epoll.register(handover.fd, select.EPOLLIN)
        sender = _Sender(order, handover, epoll)
        sender.warm()
        thread = driver.begin(order.plan, order.folder, handover)
        sender.serve()
        thread.join()
        sent = sender.close()
    handover.close()
    gc.enable()
    return sent


class _Sender:
    """Sends what LoadGen issues, in the thread that also takes the answers."""

    def __init__(self, order: Order, handover: Handover, epoll: select.epoll) -> None:
        self._order, self._handover, self._epoll = order, handover, epoll
        self._queries = Queries(driver.complete)
        self._messages = len(order.requests.messages)
        self._unsent: deque[tuple[int, int, int]] = deque()
        """Ids, samples, and when LoadGen issued them."""
        side = GrpcCall if order.target.wire is Wire.GRPC else Http1
        traces = traces_of(order.target)
        self._connections = Connections(
            order.target.address,
            lambda: side(order.requests, traces),
            limit=min(order.connections, connections_allowed()),
            poll=epoll,
            clock_ns=time.monotonic_ns,
            ended=self._queries.end,
            keeps_answers=order.keeps_answers,
        )

    def warm(self) -> None:
        """Open connections before the first query is due."""
        self._connections.warm(_WARM)
        for fd, events in self._epoll.poll(_LOOK_S):
            self._connections.take(fd, events)

    def serve(self) -> None:
        """Send and take until LoadGen has ended the run."""
        handover, order, queries = self._handover, self._order, self._queries
        while not handover.over:
            self._send()
            self._take()
            queries.tell()
            if not self._unsent and (flushed_ns := handover.flushed_ns) is not None:
                give_up_ns = flushed_ns + order.patience_ns
                queries.finish(time.monotonic_ns(), flushed_ns + order.late_ns, give_up_ns)

    def close(self) -> Sent:
        """End the run: close connections, and say what became of the queries."""
        self._connections.close()
        return self._queries.sent(self._connections.problems, self._connections.held_back)

    def _send(self) -> None:
        """Send what LoadGen has issued, or as much as answers can wait for."""
        for issued in self._handover.take():
            pairs = zip(issued.ids, issued.samples, strict=True)
            self._unsent.extend((query, sample, issued.at_ns) for query, sample in pairs)
        for _ in range(min(len(self._unsent), _AT_ONCE)):
            query, sample, at_ns = self._unsent.popleft()
            now = time.monotonic_ns()
            number = self._queries.begin(query, at_ns, now)
            if not self._connections.start(number, sample % self._messages):
                self._queries.end(number, BROKEN, now, b"")

    def _take(self) -> None:
        """Take what has come; where nothing has, and nothing is to be sent, wait for it."""
        handover, epoll = self._handover, self._epoll
        is_idle = not self._unsent and handover.may_sleep()
        events = epoll.poll(_LOOK_S if is_idle else 0)
        handover.awake()
        for fd, event in events:
            if fd == handover.fd:
                handover.drain()
            else:
                self._connections.take(fd, event)


if __name__ == "__main__":
    sys.setswitchinterval(SWITCH_S)
    sys.exit(follow(lambda frames: packed(run(Order.unpacked(frames))), before_others=True))
