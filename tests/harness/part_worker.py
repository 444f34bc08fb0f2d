"""A worker that answers a client's request in parts, as a test tells it."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest
from client_harness import MARK, MODELS, ClientHarness, numbers

from ringbatch.shm.parts import PartWriter
from ringbatch.shm.slot import Status

SAME, *OTHERS = MODELS
STREAMED: Final = (replace(SAME, in_parts=True), *OTHERS)


@pytest.fixture
def streamed_harness() -> Iterator[ClientHarness]:
    """Yield an engine of `STREAMED`."""
    with ClientHarness(STREAMED) as made:
        yield made


class Worker:
    """A worker that makes parts of the answer to one request.

    Args:
        harness: harness that took the request.
        ref: of the request.
    """

    def __init__(self, harness: ClientHarness, ref: int) -> None:
        self._harness = harness
        self._slots = harness._engine_slots
        self.ref = ref
        assert self._slots.wants_parts(ref)
        _, self._request = harness.payload(ref)
        self._writer: PartWriter = self._slots.part_writer(self._request, MARK.batch)

    def put(self, *values: int) -> bool:
        """Write a part if there is room."""
        if not self.put_down(numbers(*values).tobytes()):
            return False
        self._slots.flush()
        return True

    def put_down(self, part: bytes) -> bool:
        """Write the bytes of a part if there is room; `all_is_posted` must follow."""
        if not self._writer.write(part):
            return False
        self._slots.post_part(self.ref)
        return True

    def end(self, status: Status = Status.OK) -> None:
        """Answer behind the last part."""
        self._slots.answer(self.ref, status, 0, MARK, 1)
        self._slots.flush()

    def all_is_posted(self) -> bool:
        """Post what found no room before; whether all is posted now."""
        self._slots.flush()
        return not self._slots.delayed

    @property
    def room(self) -> int:
        """Bytes of result memory for parts."""
        return self._request.result_capacity

    @property
    def is_late(self) -> bool:
        """True if the request's deadline has passed."""
        return self._writer.deadline_ns <= time.monotonic_ns()

    @property
    def is_wanted(self) -> bool:
        """True if the client still waits."""
        return self._slots.wanted(self.ref)
