"""CloudEvents 1.0 of an exchange: one for the request, one for the answer. Pure.

Types, ids and the attributes of a service are those of KServe's logger. Bodies are as they came: V1
and V2 in JSON, V2 with binary tensors behind `jsonbytes` bytes of JSON, over gRPC a
ModelInferRequest or ModelInferResponse (protobuf). Sources: CloudEvents 1.0.2, its HTTP protocol
binding (binary content mode) and its JSON event format.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import orjson

from ringbatch.frontend.payloads.exchange import PayloadExchange
from ringbatch.frontend.payloads.settings import REQUEST, RESPONSE, Delivery

REQUEST_TYPE: Final = "org.kubeflow.serving.inference.request"
RESPONSE_TYPE: Final = "org.kubeflow.serving.inference.response"
_SUCCESS: Final = 200
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
"""Characters of headers that stay as they are. The HTTP binding would have blanks and quotes
encoded too; KServe's logger sends them, and many receivers decode nothing."""
_JSON: Final = re.compile(r"application/(?:json|[^;]*\+json)\s*(?:;|\Z)", re.IGNORECASE)


class Event(NamedTuple):
    """One event.

    Attributes:
        attributes: of its context, by name.
        data: the body.
        whole: whether all of the body is there.
    """

    attributes: Mapping[str, str]
    data: bytes
    whole: bool


def events(exchange: PayloadExchange, delivery: Delivery) -> Iterator[Event]:
    """Yield the events of an exchange that the settings want."""
    shared = {
        **dict(delivery.attributes),
        "specversion": "1.0",
        "id": exchange.event_id,
        "source": delivery.source,
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
    if delivery.mode != RESPONSE:
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
    if delivery.mode != REQUEST and (exchange.status == _SUCCESS or delivery.failures):
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
    document: dict[str, Any] = dict(event.attributes)
    if event.whole and _is_json(event):
        # White space between tokens is all that a line break can be in JSON.
        document["data"] = orjson.Fragment(event.data.replace(b"\n", b" ").replace(b"\r", b" "))
    else:
        document["data_base64"] = base64.b64encode(event.data).decode()
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


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
    return Event(attributes, data, len(data) == body_bytes)


def _timestamp(time_s: float) -> str:
    """Return a time as RFC 3339 has it."""
    second, microseconds = divmod(round(time_s * 1_000_000), 1_000_000)
    return f"{_second(second)}.{microseconds:06d}Z"


@lru_cache(maxsize=2)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _is_json(event: Event) -> bool:
    attributes = event.attributes
    if "jsonbytes" in attributes or "contentencoding" in attributes:
        return False
    if not _JSON.match(attributes.get("datacontenttype", "")):
        return False
    try:
        orjson.loads(event.data)
    except orjson.JSONDecodeError:
        return False
    return True
