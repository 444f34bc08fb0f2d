"""CloudEvents 1.0 of an exchange: one for the request, one for the answer. Pure.

Types, ids and the attributes of a service are those of KServe's logger. Bodies are as they came: V1
and V2 in JSON, V2 with binary tensors behind `jsonbytes` bytes of JSON, over gRPC a
ModelInferRequest or ModelInferResponse (protobuf). Sources: CloudEvents 1.0.2, its HTTP protocol
binding (binary content mode) and its JSON event format.
"""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote

import orjson

from ringbatch.frontend.payloads.exchange import PayloadExchange
from ringbatch.frontend.payloads.settings import REQUEST, RESPONSE, EventSettings

REQUEST_TYPE: Final = "org.kubeflow.serving.inference.request"
RESPONSE_TYPE: Final = "org.kubeflow.serving.inference.response"
_SUCCESS: Final = 200
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""Characters of headers that stay as they are. The HTTP binding would have blanks and quotes
encoded too; KServe's logger sends them, and many receivers decode nothing."""
_JSON: Final = re.compile(r"application/(?:json|[^;]*\+json)\s*(?:;|\Z)", re.IGNORECASE)


class Event(NamedTuple):
    """CloudEvent: the attributes of its context, and its data.

    Attributes:
        attributes: of its context, by name.
        data: the body, or the part of it that is kept.
    """

    attributes: Mapping[str, str]
    data: bytes


def events(exchange: PayloadExchange, settings: EventSettings) -> Iterator[Event]:
    """Yield the events of an exchange that the settings want."""
    shared = {
        **settings.attributes,
        "specversion": "1.0",
        "id": exchange.event_id,
        "requestid": exchange.request_id,
        "protocol": exchange.protocol,
    }
    if exchange.batch_id:
        shared["batchid"] = exchange.batch_id
    if exchange.model:
        shared["modelname"] = exchange.model
    if exchange.version:
        shared["modelversion"] = exchange.version
    if exchange.headers:
        shared["metadata"] = orjson.dumps({n: [v] for n, v in exchange.headers.items()}).decode()
    if settings.mode != RESPONSE:
        yield _event(
            shared.copy(),
            REQUEST_TYPE,
            exchange.began_s,
            exchange.request_type,
            exchange.request_coding,
            exchange.request_bytes,
            exchange.request_json_bytes,
            exchange.request,
        )
    if settings.mode != REQUEST and (exchange.status == _SUCCESS or settings.failures):
        shared["statuscode"] = str(exchange.status)
        yield _event(
            shared,
            RESPONSE_TYPE,
            exchange.ended_s,
            exchange.answer_type,
            exchange.answer_coding,
            exchange.answer_bytes,
            exchange.answer_json_bytes,
            exchange.answer,
        )


def as_headers(event: Event) -> dict[str, str]:
    """Return the headers of an event in binary content mode; its data is the body."""
    headers = {
        f"ce-{name}": quote(value, safe=_PLAIN)
        for name, value in event.attributes.items()
        if name != "datacontenttype"
    }
    content_type = event.attributes.get("datacontenttype", "application/octet-stream")
    return headers | {"content-type": content_type}


def as_line(event: Event) -> bytes:
    """Return an event in the JSON format, as a line."""
    attributes, data = event
    # The object of the attributes gets one more member, before its last brace.
    start = orjson.dumps(attributes)[:-1]
    if not _is_json(attributes, data):
        return b'%b,"data_base64":"%b"}\n' % (start, b64encode(data))
    # White space between tokens is all that a line break can be in JSON.
    return b'%b,"data":%b}\n' % (start, data.replace(b"\n", b" ").replace(b"\r", b" "))


def _event(
    attributes: dict[str, str],
    kind: str,
    time_s: float,
    content_type: str,
    coding: str,
    body_bytes: int,
    json_bytes: int | None,
    data: bytes,
) -> Event:
    attributes["type"] = kind
    attributes["time"] = _timestamp(time_s)
    attributes["bodybytes"] = str(body_bytes)
    if content_type:
        attributes["datacontenttype"] = content_type
    if coding:
        attributes["contentencoding"] = coding
    if json_bytes is not None:
        attributes["jsonbytes"] = str(json_bytes)
    return Event(attributes, data)


def _timestamp(time_s: float) -> str:
    """Return a time as RFC 3339 has it."""
    second, microseconds = divmod(round(time_s * 1_000_000), 1_000_000)
    return f"{_second(second)}.{microseconds:06d}Z"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _is_json(attributes: Mapping[str, str], data: bytes) -> bool:
    """Return whether a body is all there, and is JSON."""
    if "jsonbytes" in attributes or "contentencoding" in attributes:
        return False
    if attributes["bodybytes"] != str(len(data)):
        return False
    if not _is_json_type(attributes.get("datacontenttype", "")):
        return False
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True


@lru_cache(maxsize=16)
def _is_json_type(content_type: str) -> bool:
    return _JSON.match(content_type) is not None
