"""Rules between settings of the server. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ringbatch.engine.config.addresses import unix_path
from ringbatch.engine.config.upstream_rules import own_address
from ringbatch.shm.host.key_headers import KEY_HEADERS

_NEEDED: Final = {
    "tls_certificate": "tls_key",
    "tls_key": "tls_certificate",
    "tls_client_ca": "tls_certificate",
    "control_tls_certificate": "control_tls_key",
    "control_tls_key": "control_tls_certificate",
}
_TRACE_WORDS: Final = "needs control_port, because the process there sends the traces"
_SECRET: Final = frozenset(
    {*KEY_HEADERS, "cookie", "set-cookie", "proxy-authorization", "x-amz-security-token"}
)
_OF_TCP: Final = ("share_port", "grpc_port", "agent_check_port")
_TCP_WORDS: Final = (
    "is for TCP, and host is a Unix socket; give host an address, and the path to unix_socket"
)
_CORS_WORDS: Final = 'is for own_paths = "keys"; with another, the app itself answers CORS'
_LIMITS: Final = ("account_in_flight", "account_requests_per_s", "account_model_s_per_s")
_LIMIT_WORDS: Final = "needs fair_shares = true, because without it all clients count as one"
_APP_WORDS: Final = "takes all paths but those of models; pass_through and sidecar have none then"


def problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the problems of the section, each with its key.

    Args:
        values: of the section; a key whose value is wrong itself is missing.
    """
    if unix_path(values.get("host")) is not None:
        yield from ((key, _TCP_WORDS) for key in _OF_TCP if values.get(key) not in (None, False))
        if values.get("unix_socket") is not None:
            yield "unix_socket", "is another Unix socket than that of host; one of them must go"
    for key, other in _NEEDED.items():
        if values.get(key) is not None and values.get(other, "") is None:
            yield key, f"is for {other}, which is missing"
    if values.get("trace_endpoint") is not None and values.get("control_port", 0) is None:
        yield "trace_endpoint", _TRACE_WORDS
    if values.get("control_tls_key") is not None and values.get("control_port", 0) is None:
        yield "control_tls_key", "is for control_port, which is missing"
    secret = _SECRET.intersection(values.get("payload_log_headers") or ())
    if secret:
        yield "payload_log_headers", f"{sorted(secret)[0]} may hold a secret, and cannot be kept"
    place = values.get("payload_log") or ""
    if values.get("payload_log_ca") is not None and not place.startswith("https:"):
        yield "payload_log_ca", "is for a payload_log at an address that begins with https:"
    passes_to = values.get("pass_through")
    if passes_to is not None and (words := own_address(passes_to, values)):
        yield "pass_through", words
    if values.get("fair_shares") is False:
        limits = (key for key in _LIMITS if values.get(key) is not None)
        yield from ((key, _LIMIT_WORDS) for key in limits)
    if values.get("share_port") and values.get("port") == 0:
        yield "share_port", "needs a port that others can take too, and 0 takes any free one"
    other_paths = passes_to is not None or values.get("sidecar")
    if values.get("app") is not None and other_paths:
        yield "app", _APP_WORDS
    if values.get("own_paths", "keys") != "keys" and values.get("app", "") is None:
        yield "own_paths", "is for app, which is missing"
    if values.get("cors_origins") and values.get("own_paths", "keys") != "keys":
        yield "cors_origins", _CORS_WORDS
