"""Certificates that clients have to show, and certificates that do not fit."""

import socket
import ssl
import subprocess
from pathlib import Path

import grpc
import pytest
from dev_shm import takes
from serve.client import (
    Closed,
    fast,
    instances,
    request,
)
from serve.grpc_stub import grpc_port
from serve.secure import Authority, SecureConnection, write_private
from serve.server import COMMAND, Start, configured
from tiers import exhaustive

pytestmark = takes(20)
WATCHDOG_S = 60
"""Watchdog's limit, shorter than a connection may be idle."""

BODY = instances(1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_clients_may_have_to_show_a_certificate_but_not_at_the_control_address(
    start: Start, authority: Authority
) -> None:
    certificate, key = authority.certify("own")
    own_certificate, own_key = authority.certify("of-control")
    server = start(
        {"echo": {"path": "moody.py"}},
        grpc_port=0,
        tls_certificate=str(certificate),
        tls_key=str(key),
        tls_client_ca=str(authority.file),
        control_port=0,
        control_tls_certificate=str(own_certificate),
        control_tls_key=str(own_key),
    )
    context = authority.client_context(authority.certify("client"))
    with SecureConnection(server.port, context) as known:
        assert known.ask(request("/v1/models", method="GET")).status == 200
    with SecureConnection(server.control_port, authority.client_context()) as made:
        assert made.ask(request("/v2/health/live", method="GET")).status == 200
        shown = made.tls.getpeercert(binary_form=True) or b""
    pem = ssl.DER_cert_to_PEM_cert(shown).strip()
    assert own_certificate.read_text().startswith(pem), "a certificate of its own"
    with (
        pytest.raises((ssl.SSLError, ConnectionError, Closed)),
        SecureConnection(server.port, authority.client_context()) as unknown,
    ):
        unknown.ask(request("/", method="GET"))
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
    with grpc.secure_channel(f"localhost:{grpc_port(server)}", credentials) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"")
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@exhaustive
def test_a_removed_authoritys_clients_are_let_in_no_more(
    start: Start, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.certify("own")
    authorities = write_private(tmp_path / "authorities", authority.file.read_text())
    server = start(
        {"echo": {"path": "moody.py"}},
        tls_certificate=str(certificate),
        tls_key=str(key),
        tls_client_ca=str(authorities),
    )
    ask = request("/v1/models", method="GET")
    context = authority.client_context(authority.certify("client"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    other = Authority(tmp_path)
    known = authority.client_context(other.certify("known"))
    with SecureConnection(server.port, context) as kept:
        assert kept.ask(fast("echo", BODY)).status == 200
        session = kept.tls.session
        early = socket.create_connection(("127.0.0.1", server.port), WATCHDOG_S)
        write_private(authorities, other.file.read_text())
        assert kept.ended()
    with context.wrap_socket(early, server_hostname="localhost") as late:
        # It had begun under the old ones, so it is let in, and parted with as soon as none can be.
        late.sendall(ask)
        while late.recv(1 << 16):
            pass
    with SecureConnection(server.port, known) as made:
        assert made.ask(ask).status == 200
    raw = socket.create_connection(("127.0.0.1", server.port))
    with raw, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(raw, server_hostname="localhost", session=session)


@exhaustive
def test_a_key_of_another_certificate_ends_the_start(tmp_path: Path, authority: Authority) -> None:
    certificate, _ = authority.certify("one")
    _, key = authority.certify("two")
    words = configured(
        tmp_path,
        {"echo": {"path": "moody.py"}},
        tls_certificate=str(certificate),
        tls_key=str(key),
    )
    completed = subprocess.run(
        [*COMMAND, "serve", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 2
    assert completed.stderr.splitlines() == [
        f"ringbatch: {key}: is not the private key of the certificate in {certificate}"
    ]
