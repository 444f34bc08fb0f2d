"""Requests of a measurement: their protocol, path and bodies, from a file or made up."""

from typing import Any, Final
from urllib.parse import quote

import numpy as np
import orjson

from ringbatch.bench.command.settings import Protocol, Settings
from ringbatch.bench.load.infer_message import tensors_of
from ringbatch.bench.served.asking import Address, ask, excerpt
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.bench.served.signature import (
    chat_body,
    completion_body,
    generate_body,
    inputs_of,
    protocol_of,
    v1_body,
    v2_body,
)

OPENAI: Final = (Protocol.COMPLETIONS, Protocol.CHAT)
_MADE_UP: Final = 16
"""Different requests, so that none is answered by having been seen."""
_OWN_FORM: Final = (Protocol.GENERATE, *OPENAI)
"""Protocols whose bodies tell of none: --protocol must name them."""
_EVENTS_AT: Final = (Protocol.V1, Protocol.V2, *_OWN_FORM)
"""Protocols whose answers can come in events."""
_MAKERS: Final = {Protocol.V1: v1_body, Protocol.GENERATE: generate_body}


def path_of(protocol: Protocol, model: str, *, stream: bool) -> str:
    """Return the path of a model's predictions over HTTP."""
    name = quote(model, safe="")
    if protocol is Protocol.V1:
        return f"/v1/models/{name}:predict"
    if protocol is Protocol.GENERATE:
        return f"/v2/models/{name}/generate{'_stream' if stream else ''}"
    if protocol is Protocol.COMPLETIONS:
        return "/v1/completions"
    return "/v1/chat/completions" if protocol is Protocol.CHAT else f"/v2/models/{name}/infer"


def bodies_for(address: Address, model: str, settings: Settings) -> tuple[Protocol, list[bytes]]:
    """Return the protocol of the requests, and their bodies.

    Raises:
        CannotMeasure: they cannot be read or made up, or their answers do not come in events.
    """
    if settings.request is None:
        protocol = settings.protocol or Protocol.V1
        _expect_events(protocol, settings)
        bodies = _made_up(address, model, protocol, settings)
    else:
        protocol, body = _given(settings)
        _expect_events(protocol, settings)
        bodies = [body]
    if protocol in OPENAI:
        bodies = [_completed(body, model, stream=settings.stream) for body in bodies]
    return protocol, bodies


def _expect_events(protocol: Protocol, settings: Settings) -> None:
    if settings.stream and protocol not in _EVENTS_AT:
        names = ", ".join(_EVENTS_AT[:-1])
        raise CannotMeasure(
            f"--stream: over {protocol} answers do not come in events; "
            f"ask over {names} or {_EVENTS_AT[-1]}"
        )


def _given(settings: Settings) -> tuple[Protocol, bytes]:
    """Return the protocol of the request in the file, and the request."""
    assert settings.request is not None
    try:
        body = settings.request.read_bytes()
        if settings.protocol in _OWN_FORM:
            if not isinstance(orjson.loads(body), dict):
                raise ValueError(f"for --protocol {settings.protocol} it must be a JSON object")
            return settings.protocol, body
        own = Protocol(protocol_of(body))
        protocol = settings.protocol or own
        if protocol in (Protocol.GRPC, Protocol.CLIENT):
            if own is not Protocol.V2:
                raise ValueError(f"for --protocol {protocol} it must be a request of V2")
            tensors_of(body)
        return protocol, body
    except OSError as error:
        raise CannotMeasure(f"{settings.request}: {error.strerror}") from None
    except ValueError as error:
        raise CannotMeasure(f"{settings.request}: {error}") from None


def _completed(body: bytes, model: str, *, stream: bool) -> bytes:
    """Return a request of OpenAI's that names its model and asks for events, or for none."""
    asked: dict[str, Any] = orjson.loads(body)
    return orjson.dumps({"model": model, **asked, "stream": stream})


def _made_up(address: Address, model: str, protocol: Protocol, settings: Settings) -> list[bytes]:
    random = np.random.default_rng(settings.seed)
    if protocol in OPENAI:
        body = chat_body if protocol is Protocol.CHAT else completion_body
        return [body(random) for _ in range(_MADE_UP)]
    path = f"/v2/models/{quote(model, safe='')}"
    status, text, _ = ask(address, "GET", path, headers=settings.headers)
    if status != 200:
        raise CannotMeasure(f"{address}{path} answers with status {status}: {excerpt(text)}")
    try:
        inputs = inputs_of(orjson.loads(text))
    except ValueError as error:
        raise CannotMeasure(f"{address}{path}: {error}") from None
    if not inputs:
        raise CannotMeasure(
            f"{model} does not say what it takes: give a request with --request FILE"
        )
    make = _MAKERS.get(protocol, v2_body)
    return [make(inputs, random) for _ in range(_MADE_UP)]
