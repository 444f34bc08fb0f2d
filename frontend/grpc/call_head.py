"""Head of a call: its method, deadline, key and encoding. Pure.

Clients repeat most of a head with every call. The connection remembers the repeated part, and
whether its key is good, until the keys change (`ringbatch.frontend.http2.header_reader`).
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ringbatch.frontend.codec.grpc_codes import INTERNAL, RESOURCE_EXHAUSTED, UNIMPLEMENTED
from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.request_ids import (
    ASK_HEADER,
    ASKED,
    ID_HEADER,
    TRACE_HEADER,
    sound_trace,
    taken,
)
from ringbatch.frontend.grpc.messages import HEALTH_SERVICE, INFERENCE_SERVICE
from ringbatch.frontend.grpc.status import GrpcStatus, grpc_status
from ringbatch.frontend.http2.connection import LIST_BYTES
from ringbatch.frontend.http2.header_reader import Varying
from ringbatch.frontend.http2.header_rules import Http2RequestHead, expect_sound_value
from ringbatch.frontend.load.orca_report import ASK_HEADER as LOAD_HEADER
from ringbatch.frontend.load.orca_report import Form, form_of
from ringbatch.frontend.security.accounts import PRIORITY, Accounts, Peer, forwarded_in
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.shm.account import NOBODY
from ringbatch.shm.errors import InvalidRequest, Unauthenticated
from ringbatch.shm.host.key_headers import AUTHORIZATION, KEY_HEADER
from ringbatch.shm.tuples import unchecked_tuple

OPEN_METHODS: Final = frozenset(
    {
        *(f"/{INFERENCE_SERVICE}/{method}" for method in ("ServerLive", "ServerReady")),
        *(f"/{HEALTH_SERVICE}/{method}" for method in ("Check", "Watch")),
    }
)
"""Methods that need no key, for monitoring. Health's List does, because it names the models."""
IDENTITY: Final = "identity"
_TIMEOUT: Final = b"grpc-timeout"
_ID: Final = ID_HEADER.encode()
_TRACE: Final = TRACE_HEADER.encode()
_UNIQUE: Final = frozenset({_ID, _TRACE})
_TIME: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_UNITS_NS: Final = {
    b"H": 3_600_000_000_000,
    b"M": 60_000_000_000,
    b"S": 1_000_000_000,
    b"m": 1_000_000,
    b"u": 1_000,
    b"n": 1,
}
_CONTENT_TYPE: Final = re.compile(rb"application/grpc(?:[+;].*)?")
_KEPT: Final = frozenset(
    name.encode()
    for name in (
        *(":method", ":scheme", ":path", ":authority", "host", "te"),
        *("content-type", "content-length", AUTHORIZATION, KEY_HEADER, ASK_HEADER, LOAD_HEADER),
        *("user-agent", "grpc-encoding", "grpc-accept-encoding", PRIORITY.decode()),
    )
)
_METHOD_NOT_ALLOWED: Final = 405
_UNSUPPORTED_MEDIA_TYPE: Final = 415


class CallHead(NamedTuple):
    """The head of a call.

    Attributes:
        method: what serves it; None where it is refused.
        timeout_ns: how long its client waits; 0 where it does not say.
        coding: of its compressed messages.
        request_id: that its client has chosen; empty where it has none.
        trace: its ``traceparent``; empty where it has none.
        asks: whether its client wants to know where the time went.
        load: the form of a load report that its client wants.
        authorization, key: where its API key may stand.
        refusal: how it ends at once; None where it is served.
        http_status: of that end; other than 200 it is for clients that do not speak gRPC.
        denied: whether it ends so for want of a key.
        fields: all of its metadata.
        account: the word of its key and class, without an identity if it has no key.
    """

    method: Any
    timeout_ns: int
    coding: str
    request_id: bytes
    trace: bytes
    asks: bool
    load: Form
    authorization: str | None
    key: str | None
    refusal: GrpcStatus | None
    http_status: int
    denied: bool
    fields: Sequence[tuple[bytes, bytes]] = ()
    account: int = 0


class CallHeadReader:
    """Reads the heads of calls.

    Args:
        methods: what serves each path.
        keys: one of which a client must have; None where everybody is served.
        accounts: of clients; by default all requests are nobody's.
    """

    def __init__(
        self,
        methods: Mapping[str, Any],
        keys: ApiKeys | None,
        accounts: Accounts | None = None,
    ) -> None:
        self._methods = methods
        self._keys = keys
        self._accounts = accounts or Accounts(on=False)

    @property
    def varying(self) -> Varying[CallHead]:
        """The fields in which calls of one client differ."""
        return Varying(_KEPT, _UNIQUE | {_TIMEOUT}, _UNIQUE, with_values)

    def _no_method(self, path: str) -> str:
        services = sorted({known.strip("/").partition("/")[0] for known in self._methods})
        return f"there is no method {shown(path)} here; the services are {', '.join(services)}"

    def read(self, request: Http2RequestHead) -> CallHead:
        """Read the head of a call."""
        # A field that comes twice counts as absent: its key, id or trace is ambiguous.
        sent: dict[bytes, bytes] = {}
        for name, value in request.fields:
            sent[name] = b"" if name in sent else value
        path = request.path.decode("latin-1")
        authorization, key = _text(sent, AUTHORIZATION), _text(sent, KEY_HEADER)
        method = self._methods.get(path)
        refusal, http_status = self._refusal(request), 200
        denied = False
        if not _CONTENT_TYPE.fullmatch(sent.get(b"content-type", b"")):
            refusal, http_status = GrpcStatus(INTERNAL, "this is no gRPC"), _UNSUPPORTED_MEDIA_TYPE
        elif request.method != b"POST":
            refusal, http_status = GrpcStatus(INTERNAL, "a call is a POST"), _METHOD_NOT_ALLOWED
        elif refusal is None and path not in OPEN_METHODS and not self.allow(authorization, key):
            refusal, denied = grpc_status(Unauthenticated()), True
        elif refusal is None and method is None:
            refusal = GrpcStatus(UNIMPLEMENTED, self._no_method(path))
        account, priority = NOBODY, sent.get(PRIORITY)
        try:
            account = self._accounts.of_key_and_class(
                authorization, key, [] if priority is None else [priority]
            )
        except InvalidRequest as error:
            refusal = refusal or grpc_status(error)
        head = CallHead(
            method if refusal is None else None,
            0,
            _text(sent, "grpc-encoding") or IDENTITY,
            b"",
            b"",
            _text(sent, ASK_HEADER) == ASKED,
            form_of(sent.get(LOAD_HEADER.encode(), b"")),
            authorization,
            key,
            refusal,
            http_status,
            denied,
            account=account,
        )
        return with_values(head, sent, request.fields)

    def peer(self, address: Any) -> Peer:
        """Return the other end of a connection, as `Accounts.peer` does."""
        return self._accounts.peer(address)

    def account(self, head: CallHead, peer: Peer) -> int:
        """Return the account word of a call."""
        return self._accounts.word(head.account, peer, partial(forwarded_in, head.fields))

    def allow(self, authorization: str | None, key: str | None) -> bool:
        """Return whether a client with these credentials may be served now."""
        return self._keys is None or self._keys.allow(authorization, key)

    @property
    def changes(self) -> int:
        """As of `ApiKeys`."""
        return 0 if self._keys is None else self._keys.changes

    def _refusal(self, request: Http2RequestHead) -> GrpcStatus | None:
        if request.size > LIST_BYTES:
            text = f"the metadata takes {request.size} bytes; at most {LIST_BYTES} are accepted"
            return GrpcStatus(RESOURCE_EXHAUSTED, text)
        return None


def with_values(
    head: CallHead, values: Mapping[bytes, bytes], fields: Sequence[tuple[bytes, bytes]]
) -> CallHead:
    """Return the head of a call with its own id, trace and time limit.

    Args:
        head: without these three.
        values: the metadata that may hold them, by name.
        fields: all metadata of the call.

    Raises:
        StreamFault: a value is not allowed in any field.
    """
    timeout = values.get(_TIMEOUT)
    method, refusal, timeout_ns = head.method, head.refusal, 0
    if timeout is not None:
        timeout_ns = _timeout_ns(timeout)
        if timeout_ns < 0:
            expect_sound_value(timeout)
            if refusal is None:
                method, refusal = None, GrpcStatus(INTERNAL, "grpc-timeout is no time")
    request_id, trace = values.get(_ID, b""), values.get(_TRACE, b"")
    if request_id and not (request_id := taken(found := request_id)):
        expect_sound_value(found)
    if trace and not (trace := sound_trace(found := trace)):
        expect_sound_value(found)
    return unchecked_tuple(
        CallHead,
        (
            method,
            # A call tells its client that its time is over once the request is there.
            timeout_ns,
            head.coding,
            request_id,
            trace,
            head.asks,
            head.load,
            head.authorization,
            head.key,
            refusal,
            head.http_status,
            head.denied,
            fields,
            head.account,
        ),
    )


def _timeout_ns(value: bytes) -> int:
    """Return the timeout, at least 1 because 0 stands for none; -1 for a wrong value."""
    found = _TIME.fullmatch(value)
    return -1 if found is None else max(1, int(found[1]) * _UNITS_NS[found[2]])


def _text(sent: dict[bytes, bytes], name: str) -> str | None:
    value = sent.get(name.encode())
    return None if value is None else value.decode("latin-1")
