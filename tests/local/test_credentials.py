"""Files with certificates and keys: read, refused in words, and read again when they change."""

import dataclasses
import errno
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from ringbatch.engine.config.credentials import control_credentials_of, credentials_of
from ringbatch.engine.config.settings import ServerConfig
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.frontend.security.credentials import Changes, Security
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.api_key_lines import KeyOptions
from ringbatch.shm.host.credentials import Credentials, key_digests, objection, server_tls
from ringbatch.shm.host.reloading_files import ReloadingFiles

KEY, OTHER = "0123456789abcdef", "fedcba9876543210"
DIGEST = "sha256:9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f"


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def certified(
    authority: trustme.CA, folder: Path, name: str = "server", until: datetime | None = None
) -> Credentials:
    made = authority.issue_cert("localhost", not_after=until)
    certificate = private(folder / f"{name}.pem", made.cert_chain_pems[0].bytes().decode())
    key = private(folder / f"{name}.key", made.private_key_pem.bytes().decode())
    return Credentials(certificate, key)


# API keys


def test_keys_and_digests_are_read_and_comments_are_not(tmp_path: Path) -> None:
    text = f"\n# {OTHER}\n  {KEY}\n{DIGEST.upper().replace('SHA', 'sha')}\n"
    digest = bytes.fromhex(DIGEST.partition(":")[2])
    assert key_digests(private(tmp_path / "keys", text)) == {digest: KeyOptions()}


def test_the_mark_that_editors_of_windows_put_first_is_no_part_of_a_key(tmp_path: Path) -> None:
    found = key_digests(private(tmp_path / "keys", f"\ufeff{KEY}\r\n"))
    assert ApiKeys(found).allow(None, KEY)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no API key"),
        (f"# {KEY}\n", "holds no API key"),
        ("0123456789abcde", "line 1 is no API key"),
        (f"{KEY}\n\nwith blanks in it, so none\n", "line 3 is no API key"),
        (f"{KEY} weight=0", "keys: line 1 has 'weight=0'"),
        (f"{KEY}é", "line 1 is no API key"),
        ("sha256:0123456789abcdef", "line 1 is no API key"),
        ("x" * 513, "line 1 is no API key"),
    ],
)
def test_an_invalid_key_is_refused_and_not_quoted(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(StartupError, match=words) as caught:
        key_digests(private(tmp_path / "keys", text))
    assert KEY not in str(caught.value)


def test_a_file_that_everybody_can_read_is_refused(tmp_path: Path) -> None:
    path = private(tmp_path / "keys", KEY)
    for mode in (0o604, 0o602, 0o644):
        path.chmod(mode)
        with pytest.raises(StartupError, match=rf"mode {mode:04o}.*chmod o-rwx"):
            key_digests(path)
    path.chmod(0o640)
    assert key_digests(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="keys: cannot be read: No such file"):
        key_digests(tmp_path / "keys")


# Certificates


def test_a_certificate_and_its_key_make_a_context(tmp_path: Path, authority: trustme.CA) -> None:
    assert server_tls(Credentials()) is None
    assert server_tls(certified(authority, tmp_path)) is not None


@pytest.mark.parametrize("alone", [False, True])
def test_a_list_of_revoked_certificates_is_refused(
    tmp_path: Path, authority: trustme.CA, alone: bool
) -> None:
    revoked = "-----BEGIN X509 CRL-----\nMA==\n-----END X509 CRL-----\n"
    certificates = "" if alone else authority.cert_pem.bytes().decode()
    file = tmp_path / "authorities"
    file.write_text(certificates + revoked)
    credentials = dataclasses.replace(certified(authority, tmp_path), tls_client_ca=file)
    with pytest.raises(StartupError, match=r"authorities: holds a list of revoked certificates"):
        server_tls(credentials)


def test_files_that_cannot_be_used_are_named(tmp_path: Path, authority: trustme.CA) -> None:
    good = certified(authority, tmp_path)
    certificate, key = good.tls_certificate, good.tls_key
    other = certified(authority, tmp_path, "other")
    noise = private(tmp_path / "noise", "noise")
    locked = private(
        tmp_path / "locked",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    missing = tmp_path / "missing"
    der = tmp_path / "der"
    assert certificate is not None
    assert key is not None
    cut = private(tmp_path / "cut", certificate.read_text()[:300])
    half = private(tmp_path / "half", key.read_text()[:100])
    body = certificate.read_text().splitlines()
    damaged = private(tmp_path / "damaged", "\n".join([body[0], "MAAA", *body[2:]]))
    der.write_bytes(ssl.PEM_cert_to_DER_cert(certificate.read_text()))
    # As everybody may read a certificate.
    certificate.chmod(0o644)
    for found, words in (
        (Credentials(der, key), "der: is no text in UTF-8; certificates and their keys are to be"),
        (Credentials(key, certificate), "pem the certificate; exchange them"),
        (Credentials(cut, key), "cut: ends within what it holds"),
        (Credentials(certificate, half), "half: ends within what it holds"),
        (Credentials(damaged, key), "damaged and .*server.key: cannot be used: what they hold is"),
        (Credentials(missing, key), "missing: cannot be read"),
        (Credentials(certificate, missing), "missing: cannot be read"),
        (Credentials(noise, key), "noise: holds no certificate in PEM"),
        (Credentials(certificate, noise), "noise: holds no private key in PEM"),
        (Credentials(certificate, locked), "locked: is protected by a password"),
        (Credentials(certificate, other.tls_key), "other.key: is not the private key of"),
        (Credentials(certificate, key, noise), "noise: holds no certificate in PEM"),
        (Credentials(certificate, key, missing), "missing: cannot be read"),
    ):
        with pytest.raises(StartupError, match=words):
            server_tls(found)
    both = private(tmp_path / "both", certificate.read_text() + key.read_text())
    assert server_tls(Credentials(both, both)) is not None
    for exposed in (key, both):
        exposed.chmod(0o644)
        with pytest.raises(StartupError, match="every user of this machine"):
            server_tls(Credentials(certificate, exposed))


DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("since", "until", "words"),
    [
        (-2 * DAY, DAY, "nothing"),
        (-2 * DAY, -DAY, "certificate has expired"),
        (DAY, 2 * DAY, "certificate is not yet valid"),
        (-DAY, 365 * 40 * DAY, "nothing"),
    ],
)
@pytest.mark.parametrize("between", [0, 1], ids=["signed-by-the-authority", "one-between"])
def test_an_untrusted_certificate_is_reported(
    tmp_path: Path,
    authority: trustme.CA,
    since: timedelta,
    until: timedelta,
    words: str,
    between: int,
) -> None:
    signer = authority.create_child_ca() if between else authority
    now = datetime.now(UTC)
    made = signer.issue_cert("localhost", not_before=now + since, not_after=now + until)
    chain = "# é\n" + "".join(pem.bytes().decode() for pem in made.cert_chain_pems)
    certificate = private(tmp_path / "c.pem", chain)
    key = private(tmp_path / "k.pem", made.private_key_pem.bytes().decode())
    authorities = private(tmp_path / "ca.pem", "# é\n" + authority.cert_pem.bytes().decode())
    for of_clients in (None, authorities):
        tls = server_tls(Credentials(certificate, key, of_clients))
        assert tls is not None
        # Newer releases of OpenSSL add to it that the clock may be wrong.
        assert (objection(tls) or "nothing").startswith(words)


# Where they are


def test_systemd_s_files_are_taken_where_none_are_configured(
    tmp_path: Path, authority: trustme.CA
) -> None:
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert credentials_of(ServerConfig(), environment) == Credentials()
    loaded = private(tmp_path / "api_keys", KEY)
    assert credentials_of(ServerConfig(), environment) == Credentials(api_keys=loaded)
    own = tmp_path / "own"
    assert credentials_of(ServerConfig(api_keys_file=own), environment).api_keys == own
    key = private(tmp_path / "tls_key", "")
    assert credentials_of(ServerConfig(), environment).tls_key is None
    certificate = private(tmp_path / "tls_certificate", "")
    found = credentials_of(ServerConfig(), environment)
    assert (found.tls_certificate, found.tls_key) == (certificate, key)
    assert credentials_of(ServerConfig(), {}) == Credentials()


def test_the_control_address_has_the_servers_certificate_or_its_own_and_its_keys(
    tmp_path: Path,
) -> None:
    tls: dict[str, Any] = {"tls_certificate": Path("/c"), "tls_key": Path("/k")}
    server = ServerConfig(**tls, tls_client_ca=Path("/a"), api_keys_file=Path("/keys"))
    shared = Credentials(**tls, api_keys=Path("/keys"))
    assert control_credentials_of(server, {}) == shared, "it asks nobody for a certificate"
    own: dict[str, Any] = {
        "control_tls_certificate": Path("/oc"),
        "control_tls_key": Path("/ok"),
    }
    assert control_credentials_of(ServerConfig(**tls, **own), {}) == (
        Credentials(Path("/oc"), Path("/ok"))
    )
    environment = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    certificate = private(tmp_path / "control_tls_certificate", "")
    assert control_credentials_of(server, environment) == shared, "one of the two alone"
    key = private(tmp_path / "control_tls_key", "")
    assert control_credentials_of(server, environment) == (
        Credentials(certificate, key, api_keys=Path("/keys"))
    )
    assert credentials_of(server, environment).tls_certificate == Path("/c")


# Changes


NOTHING, KEYS, AUTHORITIES = Changes(False, False), Changes(True, False), Changes(False, True)


def allowed(security: Security) -> list[str]:
    assert security.keys is not None
    return [key for key in (KEY, OTHER) if security.keys.allow(None, key)]


def test_a_changed_file_is_in_force_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = private(tmp_path / "keys", KEY)
    security = Security(Credentials(api_keys=path))
    assert security.look() == NOTHING
    path.unlink()
    for _ in range(3):
        assert security.look() == NOTHING
    assert allowed(security) == [KEY]
    private(path, "short")
    assert security.look() == NOTHING
    assert allowed(security) == [KEY]
    assert len(caplog.records) == 2
    private(path, OTHER)
    os.utime(path, ns=(1, 1))
    assert security.look() == KEYS
    assert allowed(security) == [OTHER]
    assert security.look() == NOTHING


def test_a_file_that_changed_without_a_trace_but_its_inode_s_is_read(tmp_path: Path) -> None:
    path = private(tmp_path / "keys", KEY)
    before = path.stat()
    security = Security(Credentials(api_keys=path))
    path.write_text(OTHER)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert security.look() == KEYS
    assert allowed(security) == [OTHER]


def test_a_file_that_could_not_be_read_for_a_moment_is_read_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that was taken away would stay in force otherwise, whoever used up the descriptors."""
    path = private(tmp_path / "keys", KEY)
    security = Security(Credentials(api_keys=path))
    private(path, OTHER)
    with monkeypatch.context() as patch:

        def refuse(*_: object, **_named: object) -> None:
            raise OSError(errno.EMFILE, "too many")

        patch.setattr(Path, "open", refuse)
        assert security.look() == NOTHING
    assert security.look() == KEYS
    assert allowed(security) == [OTHER]


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    path = private(tmp_path / "keys", KEY)

    def read() -> str:
        text = path.read_text()
        path.write_text(OTHER)
        return text

    watched = ReloadingFiles((path,), read, print)
    assert watched.value == KEY
    assert watched.look()
    assert watched.value == OTHER


def test_certificate_and_key_are_the_checked_ones_after_the_files_change(
    tmp_path: Path, authority: trustme.CA
) -> None:
    """While they are replaced one after the other they do not belong together."""
    credentials = certified(authority, tmp_path)
    security = Security(credentials)
    assert security.context is not None
    before = security.context.current
    other = certified(authority, tmp_path, "other")
    assert credentials.tls_certificate is not None
    assert other.tls_certificate is not None
    assert credentials.tls_key is not None
    assert other.tls_key is not None
    other.tls_certificate.rename(credentials.tls_certificate)
    assert security.look() == NOTHING
    assert security.context.current is before
    other.tls_key.rename(credentials.tls_key)
    assert security.look() == NOTHING
    assert security.context.current is not before


def test_a_new_certificate_that_clients_refuse_is_in_force_and_reported(
    tmp_path: Path, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    """At its own host an operator may want it, and a start takes it as well."""
    credentials = certified(authority, tmp_path)
    security = Security(credentials)
    assert security.context is not None
    before = security.context.current
    caplog.set_level("WARNING")
    certified(authority, tmp_path)
    assert security.look() == NOTHING
    assert not caplog.records
    certified(authority, tmp_path, until=datetime.now(UTC) - DAY)
    assert security.look() == NOTHING
    assert security.context.current is not before
    assert "clients may refuse this certificate: certificate has expired" in caplog.text


def test_every_file_is_read_once(
    tmp_path: Path, authority: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    plain = Path.open

    def counting(path: Path, *arguments: Any, **named: Any) -> Any:
        opened.append(path.name)
        return plain(path, *arguments, **named)

    credentials = certified(authority, tmp_path)
    monkeypatch.setattr(Path, "open", counting)
    load, loaded = ssl.SSLContext.load_cert_chain, []

    def noting(context: ssl.SSLContext, *files: Any, **named: Any) -> None:
        loaded.append(files)
        load(context, *files, **named)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", noting)
    assert server_tls(credentials) is not None
    assert sorted(opened) == ["server.key", "server.pem"]
    ((certificate, key),) = loaded
    assert str(tmp_path) not in certificate + key


def test_other_authorities_are_in_force_at_once(tmp_path: Path, authority: trustme.CA) -> None:
    credentials = certified(authority, tmp_path)
    authorities = private(tmp_path / "ca", authority.cert_pem.bytes().decode())
    security = Security(dataclasses.replace(credentials, tls_client_ca=authorities))
    assert security.context is not None
    other = trustme.CA()
    private(authorities, other.cert_pem.bytes().decode())
    assert security.look() == AUTHORITIES
    client = ssl.create_default_context()
    authority.configure_trust(client)
    authority.issue_cert("someone").configure_cert(client)
    with pytest.raises(ssl.SSLError, match="verify failed"):
        shake_hands(security.context, client)
    other.issue_cert("someone").configure_cert(client)
    shake_hands(security.context, client)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Complete a TLS handshake in memory."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        server.wrap_bio(up, down, server_side=True),
        client.wrap_bio(down, up, server_hostname="localhost"),
    ]
    waiting = ends
    while waiting:
        waiting = [end for end in waiting if not _done(end)]


def _done(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
