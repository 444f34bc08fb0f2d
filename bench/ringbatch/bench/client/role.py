"""Process that generates load by a `Client`: orders on standard input, outcomes on output."""

import sys
from collections.abc import Sequence

import numpy as np

from ringbatch.bench.client.calls import Arrays, Calls
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.infer_message import array_of, tensors_of
from ringbatch.bench.load.outcome import BROKEN, Outcome
from ringbatch.bench.load.role import Order, follow, loads
from ringbatch.frontend import Client, StartupError

_SWITCH_S = 1e-4
"""Threads here take microseconds; by default one would hold the interpreter for five thousand."""


def run(order: Order) -> Outcome:
    """Make this process's part of the load through shared memory, and wait for its answers."""
    try:
        return _run(order)
    except StartupError as error:
        return without_engine(order.arrivals, str(error))


def without_engine(arrivals: Arrivals, why: str) -> Outcome:
    """Return the outcome of a run in which no request could be sent."""
    due = arrivals.times_ns() if arrivals.kind is not Kind.CLOSED else np.zeros(1, np.int64)
    none = np.zeros(len(due), np.int64)
    statuses = np.full(len(due), BROKEN, np.int16)
    return Outcome(due, none, none, statuses, arrivals.seconds, 0, 0, {why: len(due)})


def _run(order: Order) -> Outcome:
    arrivals, requests = order.arrivals, order.requests
    right = [{one["name"]: array_of(one) for one in found.values} for found in requests.references]
    with Client(order.target.engine) as client:
        calls = Calls(
            client,
            order.target.model,
            inputs_of(requests.messages),
            right,
            first=order.first,
            begin_ns=order.begin_ns,
        )
        if arrivals.kind is Kind.CLOSED:
            return calls.closed_loop(order.connections, arrivals.seconds)
        due = arrivals.times_ns()[order.part :: order.parts].tolist()
        return calls.open_loop(due, arrivals.seconds, order.grace_s)


def inputs_of(bodies: Sequence[bytes]) -> list[Arrays]:
    """Return the inputs for a Client, from V2 requests in JSON."""
    found: list[Arrays] = []
    for body in bodies:
        arrays = {about["name"]: array for about, array in tensors_of(body)}
        found.append(arrays if len(arrays) > 1 else next(iter(arrays.values())))
    return found


if __name__ == "__main__":
    sys.setswitchinterval(_SWITCH_S)
    # A program's threads have no precedence over the engine, whose answers they watch for.
    sys.exit(follow(loads(run), before_others=False))
