"""Codecs between a protocol and the request pipeline: the interface, and V1 and V2 over HTTP.

A codec is for all models of a process. Its knowledge of one model is that model's `v1` or `v2`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from ringbatch.frontend.codec.asked_events import EventsAsked, asks_for_events
from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.codec.payload import SlotPart
from ringbatch.frontend.codec.rendering import Rendering
from ringbatch.frontend.codec.request_context import RawHeaders
from ringbatch.frontend.request.calls import Body
from ringbatch.frontend.request.models import Models
from ringbatch.frontend.request.offload import (
    LARGE_BODY_BYTES,
    Offloaded,
    encode_headers,
    read_v1,
    read_v2,
)
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.texts.offloaded_texts import decode_parts
from ringbatch.frontend.v2.offloaded_answers import decode_requested
from ringbatch.frontend.v2.rendering import V2Rendering
from ringbatch.shm.errors import RequestError
from ringbatch.shm.model_spec import dumps
from ringbatch.shm.tallies import Protocol as RequestProtocol
from ringbatch.shm.tuples import unchecked_tuple

B_contra = TypeVar("B_contra", contravariant=True)
F_contra = TypeVar("F_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)
Parts = tuple[SlotPart, ...]
"""Parts for slots, in order."""
Read = tuple[ServedModel, Parts, Rendering[A_co], int, int]
"""A request as it was read: its model, its parts, its rendering, its timeout and its level. The
timeout in nanoseconds and the level of its class are those that the body names, each 0 if it names
none. There are no parts if there are no instances."""


class Codec(Protocol[B_contra, F_contra, A_co]):
    """Codec of one protocol: reads its requests, and makes their renderings.

    Attributes:
        protocol: the protocol that its requests are counted under.
    """

    protocol: RequestProtocol

    def read(self, name: str, body: B_contra, framing: F_contra) -> Read[A_co]:
        """Read a request.

        Args:
            name: of its model, or its `address`; empty if the body says it.
            body: undecoded.
            framing: what else came with it that says how the body is to be read.

        Raises:
            RequestError: the request cannot be read, or there is no such model.
            Offloaded: the body is too large for the event loop.
            EventsAsked: the body asks for events, and this is not for a request that may have some.
        """

    def meant(self, name: str, body: B_contra, framing: F_contra) -> ServedModel | None:
        """Return the model of a request that `read` has seen; None if there is no such model."""

    def refusal(self, name: str, error: RequestError) -> A_co:
        """Return the answer to a request that cannot be read."""


class V1Codec:
    """Codec of V1.

    The framing is the origin of a request if another server runs the model, else its head.

    Args:
        models: of this process.
        in_parts: True if its requests have asked for parts; others may do so in their body.
    """

    protocol = RequestProtocol.V1

    def __init__(self, models: Models, *, in_parts: bool = False) -> None:
        self._models = models
        self._in_parts = in_parts

    def meant(self, name: str, body: Body, framing: RawHeaders | None) -> ServedModel | None:
        """As in `Codec`."""
        return self._models.by_address.get(name) or self._models.of_any_name

    def read(self, name: str, body: Body, framing: RawHeaders | None) -> Read[Answer]:
        """As in `Codec`."""
        models = self._models
        model = models.by_address.get(name) or models.of_any_name
        if model is None:
            raise models.not_found(name)
        v1 = model.v1
        if len(body) > LARGE_BODY_BYTES:
            spec = model.spec
            value = dumps((spec,)).decode(), models.max_in_flight, encode_headers(framing)
            raise Offloaded(read_v1, value, partial(self._decoded, model), spec.timeout_ns)
        if model.spec.in_parts and asks_for_events(body, parameters=False) and not self._in_parts:
            raise EventsAsked
        if framing is None or v1.with_context is None:
            parts, columns = v1.requests.parse(body)
        else:
            parts, columns = v1.with_context.parse(body, framing)
        return model, parts, v1.columns if columns else v1.rows, 0, 0

    def _decoded(self, model: ServedModel, value: Any, data: Sequence[memoryview]) -> Read[Answer]:
        encoded, columns = value
        rendering = model.v1.columns if columns else model.v1.rows
        return model, decode_parts(encoded, data), rendering, 0, 0

    def refusal(self, name: str, error: RequestError) -> Answer:
        """As in `Codec`."""
        model = self._models.by_address.get(name) or self._models.of_any_name
        return outcome(error) if model is None else model.v1.rows.render_error(error, "")


class V2Codec:
    """V2; the framing says where the JSON text of the body ends, if that is not all of it.

    Args:
        models: of this process.
        protocol: V2, with or without binary data.
        headers: the headers of the one request that it is for; empty if no model asks for them.
        in_parts: as of `V1Codec`.
    """

    def __init__(
        self,
        models: Models,
        protocol: RequestProtocol,
        headers: RawHeaders = b"",
        *,
        in_parts: bool = False,
    ) -> None:
        self._models = models
        self._in_parts = in_parts
        self.protocol = protocol
        self._headers = headers

    def meant(self, name: str, body: Body, framing: int | None) -> ServedModel | None:
        """As in `Codec`."""
        return self._models.by_address.get(name)

    def read(self, name: str, body: Body, framing: int | None) -> Read[Answer]:
        """As in `Codec`."""
        models = self._models
        model = models.by_address.get(name)
        if model is None:
            raise models.not_found(name)
        v2 = model.v2
        if len(body) > LARGE_BODY_BYTES and v2.takes_long(len(body), framing, LARGE_BODY_BYTES):
            spec, headers = model.spec, encode_headers(self._headers)
            shares = models.regions.on
            value = dumps((spec,)).decode(), models.max_in_flight, shares, headers, framing
            raise Offloaded(read_v2, value, partial(self._decoded, model), spec.timeout_ns)
        if (
            model.spec.in_parts
            and framing is None
            and asks_for_events(body, parameters=True)
            and not self._in_parts
        ):
            raise EventsAsked
        if v2.asked is None:
            parts, requested = v2.requests.parse(body, framing)
        else:
            parts, requested = v2.asked.with_headers(self._headers).parse(body, framing)
        rendering = unchecked_tuple(V2Rendering, (v2.answers, requested))
        return model, parts, rendering, requested.timeout_ns, requested.level

    def _decoded(self, model: ServedModel, value: Any, data: Sequence[memoryview]) -> Read[Answer]:
        encoded, wanted = value
        requested = decode_requested(wanted)
        rendering = unchecked_tuple(V2Rendering, (model.v2.answers, requested))
        return model, decode_parts(encoded, data), rendering, requested.timeout_ns, requested.level

    def refusal(self, name: str, error: RequestError) -> Answer:
        """As in `Codec`."""
        return outcome(error)
