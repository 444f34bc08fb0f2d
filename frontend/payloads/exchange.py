"""Exchanges: a request and its answer, as the payload log keeps them. Pure."""

from typing import NamedTuple


class PayloadExchange(NamedTuple):
    """A request and its answer.

    Attributes:
        event_id: the id of its events: the client's header ``ce-id``, else the request id.
        request_id, batch_id: as the client gets them; the batch is empty if there was none.
        model, version: of the model; empty if there is none.
        protocol: ``v1``, ``v2``, ``v2_binary`` or ``grpc``.
        status: of HTTP, or what it would be.
        began_s, ended_s: when it was accepted and answered, seconds since 1970.
        request_type, answer_type: content types.
        request_coding, answer_coding: content encodings of the bodies, such as gzip; mostly empty.
        request_bytes, answer_bytes: of the whole bodies.
        request_json_bytes, answer_json_bytes: of the JSON text before binary tensors, as the header
            Inference-Header-Content-Length says it; None if a body has no binary tensors.
        headers: those of the request that the settings name.
        request, answer: the bodies as they were, as far as the settings keep them.
    """

    event_id: str
    request_id: str
    batch_id: str
    model: str
    version: str
    protocol: str
    status: int
    began_s: float
    ended_s: float
    request_type: str
    answer_type: str
    request_coding: str
    answer_coding: str
    request_bytes: int
    answer_bytes: int
    request_json_bytes: int | None
    answer_json_bytes: int | None
    headers: dict[str, str]
    request: bytes
    answer: bytes
