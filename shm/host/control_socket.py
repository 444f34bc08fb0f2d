"""Control socket of an engine: orders to change its models, from its user alone.

A connection carries one request, a line of JSON, and one line back once it is carried out:

    {"do": "reload" | "load" | "unload" | "handover", "model": "NAME" | null,
     "max_batch_size": N | null}
    {"end": "done" | "failed" | "unknown", "lines": ["...", ...]}

A handover keeps the connection and sends one thing more; see
`ringbatch.engine.supervisor.handover`.

The socket lies in /dev/shm under the segment's name, so it goes when the segment goes.
"""

import json
from typing import Any, Final, Literal, NamedTuple

from ringbatch.shm.shm_objects import DIRECTORY

MAX_LINE_BYTES: Final = 1 << 16
"""Longest request or answer, in bytes."""
ACTIONS: Final = ("reload", "load", "unload", "handover")
_OF_ALL: Final = ("reload", "handover")
"""Actions that may leave out the model."""

Action = Literal["reload", "load", "unload", "handover"]
End = Literal["done", "failed", "unknown"]


class Order(NamedTuple):
    """Request to change an engine.

    Attributes:
        action: ``reload`` makes the engine serve its configuration as it is now, or loads one model
            again; ``load`` and ``unload`` are for one model; ``handover`` gives the listening
            sockets to another engine, and stops this one when that serves.
        model: its name; None for all.
        max_batch_size: of the loaded model, until its next load; None for that of the
            configuration.
    """

    action: Action
    model: str | None
    max_batch_size: int | None = None


class Report(NamedTuple):
    """Result of an order.

    Attributes:
        end: ``unknown`` if there is no such model, ``failed`` if any part failed.
        lines: the changes made, and reasons for those that were not, for people.
    """

    end: End
    lines: tuple[str, ...]

    @property
    def failure(self) -> str:
        """Why not all of it was done; empty if it was."""
        return "" if self.end == "done" else "; ".join(self.lines)


def socket_path(segment_name: str) -> str:
    """Return the path of an engine's control socket."""
    return f"{DIRECTORY}{segment_name}.control"


def order_line(order: Order) -> bytes:
    """Return an order as the line that the socket carries."""
    fields = {"do": order.action, "model": order.model, "max_batch_size": order.max_batch_size}
    return json.dumps(fields).encode() + b"\n"


def read_order(line: bytes) -> Order | None:
    """Return the order in a line; None if it is none."""
    fields = _fields(line)
    action, model = fields.get("do"), fields.get("model")
    named = isinstance(model, str)
    if action not in ACTIONS or not (named or (model is None and action in _OF_ALL)):
        return None
    size = fields.get("max_batch_size")
    if size is not None and (type(size) is not int or action != "load"):
        return None
    return Order(action, model, size)


def report_line(report: Report) -> bytes:
    """Return a report as the line that the socket carries, cut to the longest allowed."""
    lines = list(report.lines)
    while len(line := json.dumps({"end": report.end, "lines": lines}).encode()) >= MAX_LINE_BYTES:
        lines = [text[: len(text) // 2] for text in lines[: max(len(lines) // 2, 1)]]
    return line + b"\n"


def read_report(line: bytes) -> Report | None:
    """Return the report in a line; None if it is none, because the engine ended before."""
    fields = _fields(line)
    if fields.get("end") not in ("done", "failed", "unknown"):
        return None
    return Report(fields["end"], tuple(map(str, fields.get("lines", ()))))


def _fields(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}
