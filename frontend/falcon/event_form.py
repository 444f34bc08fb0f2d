"""Events of many streams, written from the parts that one look has found.

Parts of one form differ in the numbers of one tensor. So one call makes the JSON text of all of
them, and the rest of each event is made once for its request.
"""

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ringbatch.frontend.codec.event_stream import event
from ringbatch.frontend.codec.number_form import NumberForm, NumberRendering, number_texts
from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.codec.rendering import Rendering
from ringbatch.frontend.request.gateway import Together
from ringbatch.frontend.request.parts_together import PartsTogether

Forms = dict[tuple[object, ...], "EventForm"]
"""Forms of the events over one connection."""
_FORMS_KEPT: Final = 16
_MOST_BYTES: Final = 1 << 12
"""Longer parts have so many numbers that the rest of an event does not count."""


class Receiver(Protocol):
    """Interface of the stream of a request.

    Attributes:
        is_free: whether an event would leave at once.
    """

    @property
    def is_free(self) -> bool:
        """See the class."""

    def take_event(self, text: bytes) -> None:
        """Take an event."""


class EventForm:
    """Form of the events over one connection. It is the `PartForm` of their requests.

    Args:
        form: of the answers.
        prefix: first bytes of each part.
        size: of each part in bytes.

    Attributes:
        prefix, size: as above.
        together: of the requests.
    """

    __slots__ = ("_form", "prefix", "size", "together")

    def __init__(self, form: NumberForm, prefix: bytes, size: int) -> None:
        self._form = form
        self.prefix = prefix
        self.size = size
        self.together = PartsTogether(self)

    def takes(self, way: "EventsTogether") -> bool:
        """As in `PartForm`."""
        return way.receiver.is_free

    def has_room(self, count: int) -> bool:
        """Return True: an event for which there is no room waits in its stream."""
        return True

    def arrange(self, ways: "list[EventsTogether]") -> None:
        """Do nothing: each way has what stands around its numbers."""

    def send(
        self,
        ways: "list[EventsTogether]",
        chosen: NDArray[np.bool_],
        parts: NDArray[np.uint8],
    ) -> bool:
        """As in `PartForm`."""
        form = self._form
        data = np.ascontiguousarray(parts[:, form.tail :])
        texts = number_texts(data.view(form.dtype).reshape(len(parts), *form.shape))
        if texts is None:
            return False
        for way, text in zip(ways, texts, strict=True):
            way.receiver.take_event(b"".join((way.before, text, way.after)))
        return True


class EventsTogether:
    """Way of the events of one request, which leave with those of others. See `DirectParts`.

    Args:
        receiver: of the request.
        rendering: of its answer.
        rows: in the request.
        batch_id: of its batch.
        forms: of the connection.

    Attributes:
        receiver: as above.
        together: as in `DirectParts`.
        before, after: what stands around the text of the numbers, see `number_texts`.
    """

    __slots__ = (
        "_batch_id",
        "_forms",
        "_prefix",
        "_rendering",
        "_rows",
        "_size",
        "after",
        "before",
        "receiver",
        "together",
    )

    def __init__(
        self,
        receiver: Receiver,
        rendering: NumberRendering,
        rows: int,
        batch_id: str,
        forms: Forms,
    ) -> None:
        self.receiver = receiver
        self.together: Together | None = None
        self.before = self.after = b""
        self._rendering: NumberRendering | None = rendering
        """None once a part has no form: then no other has."""
        self._rows = rows
        self._batch_id = batch_id
        self._forms = forms
        self._size = -1
        """Bytes of the latest part; -1 before the first."""
        self._prefix = b""

    def send(self, memory: memoryview, start: int, size: int) -> bool:
        """Learn the form of a part, and return False: alone it goes the usual way."""
        if size > _MOST_BYTES or self._rendering is None:
            self._size, self.together = -1, None
        else:
            part = memory[start : start + size].tobytes()
            if size != self._size or not part.startswith(self._prefix):
                self._learn(part)
        return False

    def _learn(self, part: bytes) -> None:
        self._size, self._prefix, self.together = len(part), part, None
        assert self._rendering is not None, "otherwise there is nothing to learn"
        form = self._rendering.number_form(self._rows, part, self._batch_id)
        if form is None:
            self._rendering = None
            return
        self._prefix = prefix = part[: form.prefix_bytes]
        depth = len(form.shape)
        self.before, self.after = event(
            form.before + b"[" * depth + b"\0" + b"]" * depth + form.after
        ).split(b"\0")
        key = prefix, len(part), form.tail, form.dtype, form.shape
        own = self._forms.get(key)
        if own is None:
            if len(self._forms) >= _FORMS_KEPT:
                self._forms.clear()
            own = self._forms[key] = EventForm(form, prefix, len(part))
        self.together = own.together


def events_together(
    receiver: Receiver, forms: Forms, rendering: Rendering[Answer], rows: int, batch_id: str
) -> EventsTogether | None:
    """Return the way of a request's events that leave with those of others; None if none do."""
    if not isinstance(rendering, NumberRendering):
        return None
    return EventsTogether(receiver, rendering, rows, batch_id, forms)
