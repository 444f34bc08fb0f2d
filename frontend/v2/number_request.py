"""V2 requests for models whose one input is of numbers and of a fixed shape, read the short way."""

import struct
from collections.abc import Callable
from itertools import starmap
from math import prod
from typing import Final

from orjson import loads

from ringbatch.frontend.codec.json_to_tensor import may_hold_booleans, number_code
from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.v2.input import IN_JSON
from ringbatch.frontend.v2.request import InferRequests
from ringbatch.frontend.v2.request_records import InferRequest, Outline
from ringbatch.frontend.v2.request_text_cache import RequestTextCache, around_values
from ringbatch.frontend.v2.requested_outputs import RequestedOutputs
from ringbatch.frontend.v2.shared_memory import ClientMemory
from ringbatch.shm.errors import RequestError
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.tuples import unchecked_tuple

_E: Final = ord("e")
"""Letter that every true and false has; it is found in a fifth of the time as a number."""
_QUOTE: Final = ord('"')


class NumberRequests(InferRequests):
    """Requests to a model whose one input is of numbers and of a fixed shape.

    If a text came before, but for its values, these alone are read. Everything else, right or
    wrong, goes the long way.
    """

    def __init__(self, spec: ModelSpec, memory: ClientMemory, max_in_flight: int) -> None:
        super().__init__(spec, memory, max_in_flight)
        self._around: RequestTextCache[Outline] = RequestTextCache(
            lambda request: request["inputs"][0]["data"]
        )
        self._cap = spec.max_batch_size
        (tensor,) = spec.inputs
        self._code = number_code(tensor.datatype)
        self._each = prod(tensor.shape)
        self._row = self._each if len(tensor.shape) == 1 else 0
        self._packs: dict[int, Callable[..., bytes]] = {}

    def parse(self, body: bytes | bytearray, json_bytes: int | None) -> InferRequest:
        """As in `Requests`."""
        if json_bytes:
            recalled = self._texts.recall(bytes(body[:json_bytes]))
            if recalled is not None:
                (_, rows, binary_bytes, requested, _), identity = recalled
                if 0 < binary_bytes == len(body) - json_bytes and rows <= self._cap:
                    return _request(rows, memoryview(body)[json_bytes:], requested, identity)
        elif json_bytes is None:
            return self._read_json(body)
        return super().parse(body, json_bytes)

    def outline(self, text: bytes, binary_bytes: int) -> Outline | None:
        """As in `Requests`."""
        try:
            if text:
                described = self._read(text)
                rows, requested = described.rows, described.requested
                if described.binary_bytes != binary_bytes or described.given[0].size < 0:
                    return None
                if not self._as_it_is(described):
                    return None
            else:
                ((rows, *_), _) = self._signature.inputs[0].raw_shape(binary_bytes)
                requested = self._outputs_reader.all_binary
        except RequestError:
            return None
        return Outline(rows, binary_bytes, requested) if 0 < rows <= self._cap else None

    def _read_json(self, body: bytes | bytearray) -> InferRequest:
        around, values = around_values(body)
        recalled = self._around.recall(around)
        if recalled is not None:
            (rows, _, requested), identity = recalled
            payload = self._packed(values, rows)
            if payload is not None:
                return _request(rows, payload, requested, identity)
        described = self._described_json(body)
        request = self._filled_json(described, body)
        rows, requested = described.rows, described.requested
        one_part = described.given[0].size == IN_JSON and 0 < rows <= self._cap
        one_part = one_part and self._as_it_is(described)
        # A quote behind the value may begin another member.
        if one_part and not requested.shared and _QUOTE not in values:
            self._around.learn(around, Outline(rows, 0, requested._replace(id=b"")), requested.id)
        return request

    def _packed(self, text: bytes | bytearray, rows: int) -> bytes | None:
        """Return the payload of so many rows from the text of their values; None if it is none."""
        if _E in text and may_hold_booleans(text):
            return None
        try:
            values = loads(text)
            if self._row and len(values) == rows and type(values[0]) is list:
                return b"".join(starmap(self._pack(1), values))
            return self._pack(rows)(*values)
        except (TypeError, ValueError, IndexError, struct.error, OverflowError):
            return None

    def _pack(self, rows: int) -> Callable[..., bytes]:
        pack = self._packs.get(rows)
        if pack is None:
            pack = self._packs[rows] = struct.Struct(f"<{rows * self._each}{self._code}").pack
        return pack


def _request(
    rows: int, payload: bytes | memoryview, requested: RequestedOutputs, identity: bytes
) -> InferRequest:
    """Return a request of one part. Calls of the classes would take twice as long."""
    if identity:
        requested = unchecked_tuple(RequestedOutputs, (identity, *requested[1:]))
    return unchecked_tuple(InferRequest, ((unchecked_tuple(Part, (rows, payload, 0)),), requested))
