"""The header blocks of answers over gRPC, made beforehand as far as they can be. Pure."""

from base64 import b64encode
from typing import Final
from urllib.parse import quote

from ringbatch.frontend.codec.request_ids import ID_HEADER
from ringbatch.frontend.grpc.status import GrpcStatus
from ringbatch.frontend.http2.header_text import STATUS_200, field, field_name, value_after

Metadata = tuple[tuple[str, str | bytes], ...]
"""Trailing metadata; bytes under a name that ends with ``-bin``."""

_STATUS: Final = field_name(b":status")
_GRPC_STATUS: Final = field_name(b"grpc-status")
_GRPC_MESSAGE: Final = field_name(b"grpc-message")
_ID: Final = field_name(ID_HEADER.encode())
HEAD: Final = b"".join(
    (
        STATUS_200,
        field(b"content-type", b"application/grpc"),
        field(b"grpc-accept-encoding", b"identity, deflate, gzip"),
    )
)
"""Header block of every answer with messages."""
_OK: Final = value_after(_GRPC_STATUS, b"0")
_WELL: Final = 200
_PLAIN: Final = bytes(range(0x20, 0x7F)).replace(b"%", b"")


def usual_trailers(request_id: bytes) -> bytes:
    """Return the trailers of a successful call of which only its id is reported."""
    return value_after(_OK + _ID, request_id)


def trailers(status: GrpcStatus | None, metadata: Metadata) -> bytes:
    """Return the trailers behind the messages of a call; without a status, of a successful one."""
    return b"".join((_OK if status is None else _status(status), *_fields(metadata)))


def trailers_alone(status: GrpcStatus, metadata: Metadata, http_status: int = 200) -> bytes:
    """Return the header block of a call without a message: head and trailers in one."""
    if http_status == _WELL:
        return b"".join((HEAD, _status(status), *_fields(metadata)))
    return b"".join((value_after(_STATUS, b"%d" % http_status), _status(status)))


def _status(status: GrpcStatus) -> bytes:
    code = value_after(_GRPC_STATUS, b"%d" % status.code)
    return code + value_after(_GRPC_MESSAGE, _percent_encoded(status.text)) if status.text else code


def _fields(metadata: Metadata) -> list[bytes]:
    return [
        field(
            name.encode(),
            value.encode("latin-1") if isinstance(value, str) else b64encode(value).rstrip(b"="),
        )
        for name, value in metadata
    ]


def _percent_encoded(text: str) -> bytes:
    return quote(text, _PLAIN, errors="replace").encode()
