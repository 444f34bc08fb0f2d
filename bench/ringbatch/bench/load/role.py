"""A process that generates load: orders on standard input, outcomes on standard output.

Both are frames of bytes with their length before them. The process lives for many runs, so starting
it costs none of them anything.
"""

import ctypes
import gc
import os
import resource
import secrets
import select
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO, Any, Final

import orjson

from ringbatch.bench.load.answers import Reference
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.event_exchange import EventExchange
from ringbatch.bench.load.exchange import Exchange, Requests, Traces
from ringbatch.bench.load.generator import Generator
from ringbatch.bench.load.grpc_call import GrpcCall
from ringbatch.bench.load.http1 import Http1
from ringbatch.bench.load.outcome import Outcome
from ringbatch.bench.load.parts import PartTimes
from ringbatch.bench.load.stream_reference import StreamReference
from ringbatch.bench.load.target import Target, Wire

_LENGTH: Final = struct.Struct("<Q")
_PR_SET_TIMERSLACK: Final = 29
_COARSE_NS: Final = 3_000_000
"""Sleeps below it are made with microseconds, which epoll does not have."""
_SPARE_DESCRIPTORS: Final = 64
_PRIORITY: Final = -10


def write_frames(file: IO[bytes], frames: Sequence[bytes]) -> None:
    """Write frames, with their number before them."""
    file.write(_LENGTH.pack(len(frames)))
    for frame in frames:
        file.write(_LENGTH.pack(len(frame)))
        file.write(frame)
    file.flush()


def read_frames(file: IO[bytes]) -> list[bytes]:
    """Read what `write_frames` wrote; nothing at the end of the file."""
    count = file.read(_LENGTH.size)
    if len(count) < _LENGTH.size:
        return []
    sizes = range(_LENGTH.unpack(count)[0])
    return [file.read(_LENGTH.unpack(file.read(_LENGTH.size))[0]) for _ in sizes]


@dataclass(frozen=True)
class Order:
    """Order for one generator.

    Attributes:
        target: of the requests.
        requests: to send.
        arrivals: of all generators together.
        part: the number of this generator.
        parts: how many there are.
        connections: of this generator; of a closed loop exactly so many, else at most.
        begin_ns: of the run, on the monotonic clock that all processes share.
        grace_s: how long to wait for answers after the last request was due.
    """

    target: Target
    requests: Requests
    arrivals: Arrivals
    part: int
    parts: int
    connections: int
    begin_ns: int
    grace_s: float

    @classmethod
    def from_frames(cls, frames: Sequence[bytes]) -> "Order":
        """Return the order that `Fleet` has written as frames."""
        order: dict[str, Any] = orjson.loads(frames[0])
        count = order.pop("messages")
        target = Target.from_object(order.pop("target"))
        arrivals = Arrivals.from_object(order.pop("arrivals"))
        compares = order.pop("compares")
        messages, bodies = frames[2 : count + 2], frames[count + 2 :]
        if target.wire is Wire.EVENTS:
            streams = [StreamReference.of(body, openai=target.openai) for body in bodies]
            requests = Requests(messages, streams=streams, compares=compares)
        else:
            requests = Requests(messages, [Reference.of(body) for body in bodies], frames[1])
        return cls(target, requests, arrivals, **order)

    @property
    def first(self) -> int:
        """The request that this generator sends first; others begin with others."""
        return self.part * 7919


def run(order: Order) -> Outcome:
    """Generate this process's part of the load over TCP and wait for its answers."""
    arrivals, requests, connections = order.arrivals, order.requests, order.connections
    closed = arrivals.kind is Kind.CLOSED
    due = arrivals.times_ns()[order.part :: order.parts].tolist()
    clock = time.monotonic_ns
    epoll = select.epoll()
    # What is known to be needed is not collected, and nothing else is made in a circle.
    gc.collect()
    gc.freeze()
    gc.disable()
    end_ns = order.begin_ns + int(arrivals.seconds * 1e9)
    parts = PartTimes(clock, end_ns) if order.target.wire is Wire.EVENTS else None
    generator = Generator(
        order.target.address,
        exchanges_of(order, parts),
        len(requests.messages),
        due,
        first=order.first,
        connections=connections,
        poll=epoll,
        clock_ns=clock,
        begin_ns=order.begin_ns,
        source=order.target.source,
        parts=parts,
    )
    give_up_ns = end_ns + int(order.grace_s * 1e9)
    generator.warm(connections if closed else min(connections, 32))
    _sleep(epoll, generator, order.begin_ns - clock())
    used_s, began_s = time.process_time(), time.monotonic()
    if closed:
        generator.begin_closed(connections, int(arrivals.seconds * 1e9))
    while True:
        wait_ns = generator.send_due()
        now = clock()
        if now >= give_up_ns or (generator.finished and (not closed or now >= end_ns)):
            break
        left_ns = give_up_ns - now
        _sleep(epoll, generator, left_ns if wait_ns is None else min(wait_ns, left_ns))
    outcome = generator.outcome(arrivals.seconds)
    busy = (time.process_time() - used_s) / (time.monotonic() - began_s)
    epoll.close()
    gc.enable()
    return replace(outcome, parts=outcome.parts and replace(outcome.parts, busy=busy))


def exchanges_of(order: Order, parts: PartTimes | None) -> Callable[[], Exchange]:
    """Return a function that makes one side of a new connection.

    Args:
        order: names the protocol, and has the requests.
        parts: takes note of parts, of answers in events.
    """
    requests, target, traces = order.requests, order.target, traces_of(order.target)
    if parts is not None:
        return lambda: EventExchange(requests, parts, traces, openai=target.openai)
    side = GrpcCall if target.wire is Wire.GRPC else Http1
    return lambda: side(requests, traces)


def traces_of(target: Target) -> Traces | None:
    """Return this process's generator of traces; None if requests have none."""
    return Traces(secrets.randbits(64)) if target.own_heads else None


def _sleep(epoll: select.epoll, generator: Generator, limit_ns: int) -> None:
    """Take what has come; where there is nothing, wait for it, no longer than that."""
    events = epoll.poll(0)
    if not events and limit_ns > 0:
        if limit_ns >= _COARSE_NS:
            events = epoll.poll((limit_ns - 1_000_000) // 1_000_000 / 1e3)
        else:
            select.select([epoll], (), (), limit_ns / 1e9)
            events = epoll.poll(0)
    for fd, event in events:
        generator.take(fd, event)


def loads(run_order: Callable[[Order], Outcome]) -> Callable[[list[bytes]], list[bytes]]:
    """Return a function that follows the orders of a `Fleet`.

    Args:
        run_order: makes the load of one order.
    """

    def answer(frames: list[bytes]) -> list[bytes]:
        order = Order.from_frames(frames)
        connections = min(order.connections, connections_allowed())
        return run_order(replace(order, connections=connections)).packed()

    return answer


def connections_allowed() -> int:
    """Return how many connections a process may open."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(most - _SPARE_DESCRIPTORS, 1)


def follow(answer: Callable[[list[bytes]], list[bytes]], *, before_others: bool) -> int:
    """Follow orders to generate load until there are none; the main function of the process.

    Args:
        answer: follows one order; what it says of that.
        before_others: whether it gets a CPU before others, where it may.

    Returns:
        The exit status.
    """
    # By default sleeps may be 50 us longer than asked for.
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    with suppress(PermissionError):
        # It has to be on time among others; root may say so.
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY if before_others else 0)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    orders, outcomes = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What it takes to get here is no part of a run.
    write_frames(outcomes, [b"ready"])
    while frames := read_frames(orders):
        write_frames(outcomes, answer(frames))
    return 0


if __name__ == "__main__":
    sys.exit(follow(loads(run), before_others=True))
