"""Access-log entries. Pure."""

import logging
from typing import Any, Final, NamedTuple

from ringbatch.frontend.access.sampling import FIRST_FAILURE
from ringbatch.shm.host.log_lines import LineFormatter
from ringbatch.shm.latency_breakdown import TIMES, Breakdown

_SERVER_FAILED: Final = 500
_LONGEST_TARGET: Final = 128
_IN_MS: Final = tuple(f"{name}_ms" for name in TIMES)


class Entry(NamedTuple):
    """A request that has ended.

    Attributes:
        time_s: when, in seconds since 1970.
        request_id: its own or that it was given.
        trace: its ``traceparent``; empty if it has none.
        target: method and path, if it is for no model that is known.
        model, version: empty if it is for none that is known.
        protocol: such as ``v2``.
        status: HTTP's, or what it would be there.
        found: where the time went.
        rows: instances in it, as far as they are known.
        batch_id: as its client knows it; empty if it was in none.
        bytes_in, bytes_out: of the bodies.
        client: its address.
        account: the name of the account that it counts for; empty if there is none.
        priority: the name of its class; empty for normal.
    """

    time_s: float
    request_id: str
    trace: str
    target: str
    model: str
    version: str
    protocol: str
    status: int
    found: Breakdown
    rows: int
    batch_id: str
    bytes_in: int
    bytes_out: int
    client: str
    account: str = ""
    priority: str = ""


def fields(entry: Entry) -> dict[str, Any]:
    """Return an entry by names, without fields that do not apply."""
    found = entry.found
    members: dict[str, Any] = {"id": entry.request_id}
    if entry.trace:
        members["trace"] = entry.trace
    if entry.target:
        members["target"] = entry.target[:_LONGEST_TARGET]
    if entry.model:
        members["model"] = entry.model
        members["version"] = entry.version
    if entry.account:
        members["account"] = entry.account
    if entry.priority:
        members["class"] = entry.priority
    members["protocol"] = entry.protocol
    members["status"] = entry.status
    members["ms"] = found.total / 1e6
    members["cause"] = found.cause(entry.rows)
    for name, ns in zip(_IN_MS, found.times, strict=True):
        if ns:
            members[name] = ns / 1e6
    if entry.batch_id:
        members["batch"] = entry.batch_id
        members["batch_size"] = found.batch_rows
    if entry.rows:
        members["instances"] = entry.rows
    if found.reason:
        members["reason"] = found.reason
    if found.attempts:
        members["attempts"] = found.attempts
    members["bytes_in"] = entry.bytes_in
    members["bytes_out"] = entry.bytes_out
    if entry.client:
        members["client"] = entry.client
    return members


def line(entry: Entry, formatter: LineFormatter) -> str:
    """Return an entry as a line of the log: a failure of ours is a warning."""
    level = logging.WARNING if entry.status >= _SERVER_FAILED else logging.INFO
    word = "failed" if entry.status >= FIRST_FAILURE else "answered"
    return formatter.line(entry.time_s, level, f"request {word}", fields(entry))
