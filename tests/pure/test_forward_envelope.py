"""Envelopes in slots: requests for another server, and its refusals."""

import pytest

from ringbatch.shm.forward_envelope import (
    KEY_BYTES,
    BadEnvelope,
    Envelope,
    Refusal,
    decode_envelope,
    encode_envelope,
    list_start,
    read_refusal,
    refusal_text,
)

ORIGIN = b"/v1/models/m:predict?a=b\nauthorization: x\nx-t: 1: 2\n"


def test_an_encoded_envelope_can_be_decoded() -> None:
    payload = encode_envelope(ORIGIN, b'{"instances":', b',"a":\n\n[1]}') + b"[1,2]"
    assert payload[list_start(payload) :] == b"[1,2]"
    assert decode_envelope(payload) == Envelope(
        b"/v1/models/m:predict?a=b",
        b"authorization: x\r\nx-t: 1: 2\r\n",
        b'{"instances":',
        b',"a":\n\n[1]}',
    )


def test_a_request_without_headers_is_one() -> None:
    payload = encode_envelope(b"/p\n", b'{"inputs":', b"}") + b"[]"
    assert decode_envelope(payload) == Envelope(b"/p", b"", b'{"inputs":', b"}")


@pytest.mark.parametrize(
    ("origin", "opening", "closing"),
    [
        (ORIGIN.replace(b"a=b", b"a=c"), b'{"instances":', b',"a":1}'),
        (ORIGIN.replace(b": x", b": y"), b'{"instances":', b',"a":1}'),
        (ORIGIN, b'{"inputs":', b',"a":1}'),
        (ORIGIN, b'{"instances":', b',"a":2}'),
        (ORIGIN, b'{"instances":', b"}"),
    ],
)
def test_any_difference_makes_another_key(origin: bytes, opening: bytes, closing: bytes) -> None:
    usual = encode_envelope(ORIGIN, b'{"instances":', b',"a":1}')
    assert encode_envelope(origin, opening, closing)[:KEY_BYTES] != usual[:KEY_BYTES]
    assert encode_envelope(ORIGIN, b'{"instances":', b',"a":1}') == usual


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        bytes(KEY_BYTES - 1),
        bytes(KEY_BYTES),
        (1 << 63).to_bytes(8, "little") + bytes(100),
        encode_envelope(ORIGIN, b"{", b"}") + b"[",
        encode_envelope(b"p\n", b"{", b"}") + b"[]",
        encode_envelope(b"/p\r\n", b"{", b"}") + b"[]",
        (4).to_bytes(8, "little") + bytes(32) + b"/p\n\n[]",
    ],
)
def test_a_payload_that_is_something_else_is_refused(payload: bytes) -> None:
    with pytest.raises(BadEnvelope):
        decode_envelope(payload)


@pytest.mark.parametrize(
    "refusal",
    [Refusal(503, "", "busy"), Refusal(400, "17", ""), Refusal(599, "x y", '{"error":\n"a"}')],
)
def test_a_refusal_is_read_as_it_was_written(refusal: Refusal) -> None:
    assert read_refusal(refusal_text(refusal)) == refusal
