"""Parts of several requests that one look at their slots passes on.

A step of a model makes a part for each of its rows. If these parts have one form, and go to one
connection, a few array operations read and write all of them. What remains for each is to count it.
"""

from collections.abc import Mapping
from itertools import compress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ringbatch.frontend.request.parts_task import DirectParts, RequestInParts
from ringbatch.shm.lane import Lane
from ringbatch.shm.many_parts import FEW, ManyPartsReader, with_parts


class PartForm(Protocol):
    """Form of the parts that go to one connection. Each way is the `DirectParts` of a request.

    Attributes:
        size: of each part in bytes.
        prefix: first bytes of each part.
    """

    size: int
    prefix: bytes

    def takes(self, way: Any) -> bool:
        """Return whether a part on that way need not wait for its client."""

    def has_room(self, count: int) -> bool:
        """Return whether the connection has room for so many parts."""

    def arrange(self, ways: list[Any]) -> None:
        """Prepare for these ways, among which `send` has its own from now on."""

    def send(self, ways: list[Any], chosen: NDArray[np.bool_], parts: NDArray[np.uint8]) -> bool:
        """Send parts; return False, with nothing done, if one of them needs a look.

        Args:
            ways: of the parts, in order.
            chosen: by each way that `arrange` got, whether it is one of these.
            parts: of shape [ways, size].
        """


class PartsTogether:
    """Requests whose parts have one form, see the module.

    Args:
        form: of their parts.
    """

    __slots__ = ("_form", "_reader", "_ways")

    def __init__(self, form: PartForm) -> None:
        self._form = form
        self._ways: list[DirectParts] = []
        """Ways of the requests that the reader and the form are set up for."""
        self._reader: ManyPartsReader | None = None

    def pass_on(
        self, requests: Mapping[int, RequestInParts[Any]], lane: Lane, now_ns: int
    ) -> list[int]:
        """Pass on a part of each request, if possible.

        Args:
            requests: by slot.
            lane: of the slots.
            now_ns: the time.

        Returns:
            The slots in which parts may be left.
        """
        form = self._form
        slots: list[int] = []
        ways: list[DirectParts] = []
        left: list[int] = []
        for slot, request in requests.items():
            way = request.direct
            if way is not None and form.takes(way):
                slots.append(slot)
                ways.append(way)
            else:
                left.append(slot)
        if len(slots) < FEW or not form.has_room(len(slots)):
            return [*requests]
        reader = self._reader
        if reader is None or ways != self._ways:
            reader = self._reader = ManyPartsReader(lane, slots, form.size, form.prefix)
            self._ways = ways
            form.arrange(ways)
        chosen, parts = reader.read()
        if len(parts) < len(slots):
            slots, ways, without = with_parts(slots, ways, chosen)
            left += without
        if not slots or not form.send(ways, chosen, parts):
            return [*requests]
        others = reader.take(chosen)
        if others.any():
            left += compress(slots, others.tolist())
        _count([requests[slot] for slot in slots], now_ns)
        return left


def _count(requests: list[RequestInParts[Any]], now_ns: int) -> None:
    """Count the time of a further part of each request, mostly the same for all."""
    times, last_ns, alike = requests[0].tally.parts, requests[0].last_ns, 0
    for request in requests:
        if request.last_ns == last_ns and request.tally.parts is times:
            alike += 1
        else:
            request.tally.parts.count(now_ns, request.last_ns, request.accepted_ns)
        request.last_ns = now_ns
    times.gaps.add(now_ns - last_ns, alike)
