"""HTTP requests, sound ones and those on which parsers are known to differ."""

from typing import Final

V1: Final = b"/v1/models/m:predict"
V2: Final = b"/v2/models/m/infer"
GENERATE: Final = b"/v2/models/m/generate_stream"
BODY: Final = b'{"instances":[1]}'


def request(*lines: bytes, body: bytes = BODY, path: bytes = V1, version: bytes = b"1.1") -> bytes:
    """A POST with a sound Content-Length, and other lines before it."""
    head = [b"POST %b HTTP/%b" % (path, version), b"Host: x", *lines]
    return b"\r\n".join([*head, b"Content-Length: %d" % len(body), b"", body])


def bare(*lines: bytes, body: bytes = BODY, version: bytes = b"1.1") -> bytes:
    """A POST with these lines alone."""
    return b"\r\n".join([b"POST %b HTTP/%b" % (V1, version), b"Host: x", *lines, b"", body])


IN_CHUNKS: Final = b"11\r\n%b\r\n0\r\n\r\n" % BODY
_SECOND: Final = b"GET /admin HTTP/1.1\r\nHost: y\r\n\r\n"
SMUGGLED: Final = (
    # Two ways to tell where the body ends (RFC 9112, section 6.3).
    bare(b"Content-Length: 6", b"Transfer-Encoding: chunked", body=b"0\r\n\r\nG"),
    bare(b"Transfer-Encoding: chunked", b"Content-Length: 4", body=b"5c\r\nGPOST\r\n0\r\n\r\n"),
    bare(b"Transfer-Encoding: xchunked", b"Content-Length: 17"),
    bare(b"Transfer-Encoding : chunked", b"Content-Length: 17"),
    bare(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=b"0\r\n\r\n"),
    bare(b"Transfer-Encoding:\tchunked", body=b"3\r\nabc\r\n0\r\n\r\n"),
    bare(b"Transfer-Encoding: chunked", body=b'3;ext="a\r\n"\r\nabc\r\n0\r\n\r\n'),
    bare(b"Transfer-Encoding: chunked", body=b"0x3\r\nabc\r\n0\r\n\r\n"),
    bare(b"Transfer-Encoding: chunked", body=b"3\nabc\r\n0\r\n\r\n"),
    bare(b"Transfer-Encoding: chunked", body=b"ffffffffffffffff3\r\nabc\r\n0\r\n\r\n"),
    bare(b"Transfer-Encoding: chunked", body=b"3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n"),
    # Parsers of plain HTTP/1.0 know no chunks (RFC 9112, section 6.1).
    *(
        bare(b"Connection: keep-alive", *lines, body=IN_CHUNKS, version=b"1.0") + _SECOND
        for lines in (
            [b"Transfer-Encoding: chunked"],
            [b"Transfer-Encoding: chunked", b"Content-Length: %d" % len(IN_CHUNKS)],
            [b"transfer-encoding: gzip, chunked"],
        )
    ),
    # Numbers that are none, or not the same everywhere.
    *(
        bare(b"Content-Length: " + length) + _SECOND
        for length in (
            b"+17",
            b"-1",
            b"0x11",
            b"1_7",
            b"17, 17",
            b"17,17",
            b"17 17",
            b"17;q=1",
            b"017",
            b"0000000000000000000000017",
            b"1e1",
            b"17.0",
            b"",
            b" 17 ",
            b"\t17",
            b"\x0b17",
            b"17\x00",
            b"\xd9\xa1\xd9\xa7",
            b"18446744073709551633",
            b"99999999999999999999",
        )
    ),
    bare(b"Content-Length: 17", b"Content-Length: 17"),
    bare(b"Content-Length: 17", b"Content-Length: 0") + _SECOND,
    bare(b"Content-Length: 0", b"content-length: 17") + _SECOND,
    bare(b"Content_Length: 0", b"Content-Length: 17"),
    bare(b"Content-Length : 17"),
    bare(b" Content-Length: 17"),
    bare(b"Content-Length\x00: 17"),
    bare(b"Content-Length:17"),
    bare(b"X: a", b" Content-Length: 0", b"Content-Length: 17"),
    bare(b"X: a\r\n\tb", b"Content-Length: 17"),
    bare(b"X: a\nContent-Length: 0", b"Content-Length: 17"),
    bare(b"X: a\rContent-Length: 0", b"Content-Length: 17"),
    bare(b"X: a\x00b", b"Content-Length: 17"),
    bare(b": empty", b"Content-Length: 17"),
    bare(b"no colon", b"Content-Length: 17"),
    bare(b"Content-Length: 17", b"Expect: 100-continue"),
    bare(b"Content-Length: 17", b"Connection: upgrade", b"Upgrade: h2c"),
    bare(b"Content-Length: 17", b"Connection: close, keep-alive"),
    bare(b"Content-Length: 17", b"Connection: Content-Length"),
    bare(b"Content-Length: 17", b"Host: y"),
    bare(b"Content-Length: 17", b"Host: y", version=b"1.0"),
    request().replace(b"Host: x\r\n", b"") + _SECOND,
    b"GET /v1/models HTTP/1.1\r\n\r\n" + _SECOND,
    b"GET /v1/models HTTP/1.1\r\nHost: x\r\nhost: x\r\n\r\n" + _SECOND,
    b"POST %b HTTP/1.1\nHost: x\nContent-Length: 17\n\n%b" % (V1, BODY),
    b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 17\n\r\n%b" % (V1, BODY),
    b"\r\n\r\n" + request(),
    b"POST  %b HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % V1,
    b"POST %b  HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % V1,
    b"POST %b\tHTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % V1,
    b"POST %b HTTP/1.1 \r\nHost: x\r\nContent-Length: 0\r\n\r\n" % V1,
    b"POST %b HTTP/01.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % V1,
    b"POST %b\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % V1,
    request(path=b"http://other" + V1),
    request(path=b"//v1/models/m:predict"),
    request(path=V1 + b"#fragment"),
    request(path=V1 + b"?a=b&c=%00"),
    request(path=b"/v1/models/%6d:predict"),
    request(path=b"/v1/models/../models/m:predict"),
    request(path=b"/v1/models/\xff:predict"),
    request(version=b"1.0"),
    request(version=b"2.0"),
)
SOUND: Final = (
    request(),
    request(body=b""),
    request(path=V2, body=b'{"inputs":[]}'),
    request(b"Inference-Header-Content-Length: 5", path=V2, body=b"{   }\x00\x01\x02"),
    request(b"Inference-Header-Content-Length: 5", b"Inference-Header-Content-Length: 6", path=V2),
    request(b"Connection: close") + request(),
    request(b"Connection: keep-alive") + request(path=V2) + request(b"A: b"),
    request(b"X-Request-Timeout: 1.5"),
    request(b"X-Request-Timeout: 1", b"X-Request-Timeout: 2"),
    request(b"X-Request-Timeout: -1"),
    request(b"Content-Encoding: gzip"),
    request(b"Content-Encoding: identity"),
    request(b"Content-Type: application/cloudevents+json"),
    request(b"Accept-Encoding: gzip, identity;q=0"),
    request(b"Authorization: Bearer key"),
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + request(),
    request() + b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n",
    request() + SMUGGLED[0],
    request() + b"nonsense\r\n\r\n",
)
CORPUS: Final = (*SOUND, *SMUGGLED)
TOKENS: Final = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b" ",
    b"\t",
    b"\x00",
    b"\x0b",
    b":",
    b",",
    b"0",
    b"1",
    b"17",
    b"18446744073709551615",
    b"-",
    b"+",
    b"0x",
    b"Content-Length: ",
    b"content-length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"Expect: 100-continue\r\n",
    b"Upgrade: websocket\r\n",
    b"Host: y\r\n",
    b"Inference-Header-Content-Length: 3\r\n",
    b"X-Request-Timeout: 0.1\r\n",
    b"HTTP/1.0",
    b"HTTP/1.1",
    b"GET ",
    b"POST ",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"%00",
    b"%2f",
    b"?",
    b"#",
    b"\xff",
    b"\xc3\xa9",
    V1,
    V2,
)
