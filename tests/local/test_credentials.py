"""Files with certificates and keys: read, refused in words, and read again when they change."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme

from ringbatch.engine.credentials import credentials_of
from ringbatch.engine.settings import ServerConfig
from ringbatch.frontend.security import Security
from ringbatch.shm.credentials import Credentials, expiry, key_digests, server_context
from ringbatch.shm.errors import StartupError

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
    authority: trustme.CA, folder: Path, name: str = "server", ends: datetime | None = None
) -> Credentials:
    made = authority.issue_cert("localhost", not_after=ends)
    certificate = private(folder / f"{name}.pem", made.cert_chain_pems[0].bytes().decode())
    key = private(folder / f"{name}.key", made.private_key_pem.bytes().decode())
    return Credentials(certificate, key)


# API keys


def test_keys_and_digests_are_read_and_comments_are_not(tmp_path: Path) -> None:
    text = f"\n# {OTHER}\n  {KEY}\n{DIGEST.upper().replace('SHA', 'sha')}\n"
    digest = bytes.fromhex(DIGEST.partition(":")[2])
    assert key_digests(private(tmp_path / "keys", text)) == {digest}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no API key"),
        (f"# {KEY}\n", "holds no API key"),
        ("0123456789abcde", "line 1 is no API key"),
        (f"{KEY}\n\nwith blanks in it, so none\n", "line 3 is no API key"),
        (f"{KEY}é", "line 1 is no API key"),
        ("sha256:0123456789abcdef", "line 1 is no API key"),
        ("x" * 513, "line 1 is no API key"),
    ],
)
def test_what_is_no_key_is_refused_and_not_quoted(tmp_path: Path, text: str, words: str) -> None:
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
    assert server_context(Credentials()) is None
    assert server_context(certified(authority, tmp_path)) is not None


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
    for found, words in (
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
            server_context(found)
    assert key is not None
    key.chmod(0o644)
    with pytest.raises(StartupError, match="every user of this machine"):
        server_context(good)


@pytest.mark.parametrize("days", [-3, 40, 365 * 40])
def test_the_end_of_a_certificate_is_read(tmp_path: Path, authority: trustme.CA, days: int) -> None:
    ends = (datetime.now(UTC) + timedelta(days=days)).replace(microsecond=0)
    certificate = certified(authority, tmp_path, ends=ends).tls_certificate
    assert certificate is not None
    assert expiry(certificate) == ends


@pytest.mark.parametrize("body", ["", "MAAA", "MIIB", "AAAA" * 100, "####"])
def test_what_is_no_certificate_has_no_end(tmp_path: Path, body: str) -> None:
    text = f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"
    with pytest.raises(StartupError, match="holds no certificate"):
        expiry(private(tmp_path / "c.pem", text))


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


# Changes


def test_a_changed_file_is_in_force_and_a_broken_one_is_not(tmp_path: Path) -> None:
    path = private(tmp_path / "keys", KEY)
    security = Security(Credentials(api_keys=path))
    assert security.keys is not None
    assert not security.look()
    path.unlink()
    assert not security.look()
    assert security.keys.allow(None, KEY)
    private(path, "short")
    assert not security.look()
    assert security.keys.allow(None, KEY)
    private(path, OTHER)
    os.utime(path, ns=(1, 1))
    assert security.look()
    assert (security.keys.allow(None, KEY), security.keys.allow(None, OTHER)) == (False, True)
    assert not security.look()
