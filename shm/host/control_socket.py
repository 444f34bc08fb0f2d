"""How an engine is told to change what it serves: a socket beside the segment, for its user alone.

One request a connection, a line of JSON, and one line back once it is carried out:

    {"do": "reload" | "load" | "unload" | "handover", "model": "NAME" | null,
     "max_batch_size": N | null}
    {"end": "done" | "failed" | "unknown", "lines": ["...", ...]}

Whoever asks for a handover keeps the connection, over which it says one thing more; see
`ringbatch.engine.supervisor.succession`.

The socket lies in /dev/shm under the segment's name, so it goes when the segment goes.
"""

import json
from typing import Any, Final, Literal, NamedTuple

from ringbatch.shm.object_names import DIRECTORY

MAX_LINE_BYTES: Final = 1 << 16
"""Of a request or an answer."""
ACTIONS: Final = ("reload", "load", "unload", "handover")
_OF_ALL: Final = ("reload", "handover")
"""Those that need no model."""

Action = Literal["reload", "load", "unload", "handover"]
End = Literal["done", "failed", "unknown"]


class Order(NamedTuple):
    """What is to be done.

    Attributes:
        action: ``reload`` makes the engine serve what its configuration says now, or has one model
            loaded again; ``load`` and ``unload`` are for one model; ``handover`` has it give its
            listening sockets to another engine, and stop when that serves.
        model: its name; None where it is for all.
        max_batch_size: with which a model is loaded, until it is loaded anew, in place of that of
            its configuration; None for that.
    """

    action: Action
    model: str | None
    max_batch_size: int | None = None


class Report(NamedTuple):
    """What came of it.

    Attributes:
        end: ``unknown`` where there is no such model, ``failed`` where anything of it failed.
        lines: what was done and why not, for people.
    """

    end: End
    lines: tuple[str, ...]

    @property
    def failure(self) -> str:
        """Why not all of it was done; empty if it was."""
        return "" if self.end == "done" else "; ".join(self.lines)


def socket_path(segment_name: str) -> str:
    """Where the socket of a segment's engine is."""
    return f"{DIRECTORY}{segment_name}.control"


def order_line(order: Order) -> bytes:
    """A request as it crosses."""
    fields = {"do": order.action, "model": order.model, "max_batch_size": order.max_batch_size}
    return json.dumps(fields).encode() + b"\n"


def read_order(line: bytes) -> Order | None:
    """The request in a line; None where it is none."""
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
    """An answer as it crosses, cut to the length there is."""
    lines = list(report.lines)
    while len(line := json.dumps({"end": report.end, "lines": lines}).encode()) >= MAX_LINE_BYTES:
        lines = [text[: len(text) // 2] for text in lines[: max(len(lines) // 2, 1)]]
    return line + b"\n"


def read_report(line: bytes) -> Report | None:
    """The answer in a line; None where it is none, because the engine ended before."""
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
