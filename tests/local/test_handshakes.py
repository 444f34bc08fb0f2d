"""TLS hand-shakes that fail: each is counted, and the log has some of them with their reasons."""

import gc
import logging
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from ringbatch.frontend.security.credentials import Security
from ringbatch.frontend.security.handshakes import LOG_EVERY_S, FailedHandshakes, reason_of
from ringbatch.shm.host.credentials import Credentials


class Clock:
    """Clock that stands still until a test moves it."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def failed(clock: Clock) -> FailedHandshakes:
    return FailedHandshakes(clock)


def test_the_log_has_the_first_at_once_and_then_a_line_a_minute_for_all_others(
    failed: FailedHandshakes, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    counted: list[int] = []
    failed.count = counted.append
    failed.look()
    failed.add("a")
    failed.look()
    for second in range(int(LOG_EVERY_S)):
        clock.now_s = second
        for reason in ("b", "a", "b"):
            failed.add(reason)
        failed.look()
    clock.now_s = LOG_EVERY_S
    failed.look()
    failed.look()
    n = int(LOG_EVERY_S)
    assert caplog.messages == [
        "TLS hand-shakes failed: a (1)",
        f"TLS hand-shakes failed: b ({2 * n}), a ({n})",
    ]
    assert (failed.total, sum(counted)) == (3 * n + 1, 3 * n + 1)
    assert counted == [1, *[3] * n], "each once, and nothing where there is none"


def test_failures_before_the_first_look_count_in_the_total(
    failed: FailedHandshakes,
) -> None:
    failed.add("a")
    failed.look()
    assert failed.total == 1


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Credentials:
    folder = tmp_path_factory.mktemp("files")
    authority = trustme.CA()
    made = authority.issue_cert("localhost")
    paths = [folder / name for name in ("certificate", "key", "ca")]
    texts = [made.cert_chain_pems[0], made.private_key_pem, authority.cert_pem]
    for path, text in zip(paths, texts, strict=True):
        path.write_bytes(text.bytes())
        path.chmod(0o600)
    return Credentials(*paths)


Client = Callable[[Path], ssl.SSLContext]


def trusting(ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca)


def strange(_ca: Path) -> ssl.SSLContext:
    return ssl.create_default_context()


def old(ca: Path) -> ssl.SSLContext:
    context = trusting(ca)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


def talk(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Both ends of a hand-shake, in memory, as far as it goes."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in list(ends):
            try:
                end.do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                continue
            except ssl.SSLError:
                ends.remove(end)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize(
    ("client", "asks", "reasons"),
    [
        (trusting, False, []),
        (trusting, True, ["the client showed no certificate"]),
        (strange, False, ["the client does not trust this certificate"]),
        (old, False, ["the client speaks no TLS 1.2 or 1.3"]),
    ],
)
def test_each_is_counted_with_its_reason(
    files: Credentials,
    client: Client,
    asks: bool,
    reasons: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert files.tls_client_ca is not None
    ca = files.tls_client_ca
    security = Security(files if asks else Credentials(files.tls_certificate, files.tls_key))
    assert security.context is not None
    talk(security.context, client(ca))
    security.look()
    assert caplog.messages == [f"TLS hand-shakes failed: {reason} (1)" for reason in reasons]
    assert security.failed_handshakes.total == len(reasons)


@pytest.mark.parametrize(
    ("sent", "reasons"),
    [
        (b"", []),
        (b"\x16\x03\x01\x02\x00\x01", ["the client hung up, or took too long"]),
        (b"GET / HTTP/1.1\r\n\r\n", ["the client spoke plain HTTP"]),
        (b"\xff" * 100, ["wrong version number"]),
    ],
    ids=["silent", "cut off", "plain", "noise"],
)
def test_a_connection_that_ends_amid_its_hand_shake_is_counted_unless_it_said_nothing(
    files: Credentials, sent: bytes, reasons: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    security = Security(Credentials(files.tls_certificate, files.tls_key))
    assert security.context is not None
    incoming = ssl.MemoryBIO()
    end = security.context.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        end.do_handshake()
    if sent:
        incoming.write(sent)
        with pytest.raises(ssl.SSLError):
            end.do_handshake()
    del end
    gc.collect()
    security.look()
    assert caplog.messages == [f"TLS hand-shakes failed: {reason} (1)" for reason in reasons]


def test_a_certificate_that_was_read_again_is_watched_too(
    files: Credentials, tmp_path: Path
) -> None:
    assert files.tls_certificate is not None
    certificate = tmp_path / "certificate"
    certificate.write_bytes(files.tls_certificate.read_bytes())
    security = Security(Credentials(certificate, files.tls_key))
    certificate.write_bytes(files.tls_certificate.read_bytes() + b"\n")
    security.look()
    assert security.context is not None
    talk(security.context, ssl.create_default_context())
    assert security.failed_handshakes.total == 1


def test_reasons_are_openssls_and_never_empty() -> None:
    assert reason_of(ssl.SSLError(1, "text of a client")) == "unknown"


def test_it_is_no_failure_to_ask_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    Security(Credentials()).look()
    assert caplog.messages == []
