"""Answers for HTTP/1.0 clients, which know no chunks (RFC 9112, section 6.1)."""

from typing import Any, Final

from ringbatch.frontend.http.asgi import Send

_WITHOUT_BODY: Final = (204, 304)


def without_chunks(cycle: Any, usual_headers: list[tuple[bytes, bytes]]) -> Send:
    """Return a wrapper of a cycle's `send` for HTTP/1.0: a body without chunks ends the connection.

    Args:
        cycle: uvicorn's, of one request.
        usual_headers: of every answer, without the word that the connection is kept.
    """
    send, bare = cycle.send, False

    async def sent(message: dict[str, Any]) -> None:
        nonlocal bare
        if message["type"] == "http.response.start" and not cycle.response_started:
            headers = [(name.lower(), value) for name, value in message.get("headers", ())]
            sized = any(name == b"content-length" for name, _ in headers)
            silent = cycle.scope["method"] == "HEAD" or message["status"] in _WITHOUT_BODY
            bare = not (sized or silent)
            if bare:
                kept = [line for line in headers if line[0] != b"transfer-encoding"]
                message = message | {"headers": kept}
                cycle.chunked_encoding = cycle.keep_alive = False
                cycle.default_headers = usual_headers
        elif bare:
            # uvicorn counts the rest of a known length.
            cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    return sent
