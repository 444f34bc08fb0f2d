"""The files by which server and clients prove who they are, read alike by all who need them.

The supervisor reads them before it starts anything, so that a bad one ends the start in words; the
frontends read them again, to use them, and whenever they have changed.
"""

import binascii
import hashlib
import os
import re
import ssl
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ringbatch.shm.errors import StartupError

LEAST_KEY_CHARACTERS: Final = 16
"""Of an API key: a shorter one could be guessed."""

_KEY: Final = re.compile(rf"[!-~]{{{LEAST_KEY_CHARACTERS},512}}")
_DIGEST: Final = re.compile(r"sha256:([0-9a-fA-F]{64})")
_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH
_NO_CERTIFICATE: Final = "{}: holds no certificate in PEM"
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_TIMES: Final = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where the files are; None where the server has none and asks for none.

    Attributes:
        tls_certificate: the certificate and those between it and the authority, PEM.
        tls_key: the certificate's private key, PEM.
        tls_client_ca: authorities one of which must have signed a client's certificate, PEM.
        api_keys: keys one of which a client must send; see `key_digests`.
    """

    tls_certificate: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    api_keys: Path | None = None

    def files(self) -> dict[str, Path]:
        """Those that there are, by the names of the attributes."""
        found = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: path for name, path in found if path is not None}


def server_context(credentials: Credentials) -> ssl.SSLContext | None:
    """What a listening socket needs for TLS 1.2 and 1.3; None where there is no certificate.

    Raises:
        StartupError: a file cannot be read or is not what it should be, or they do not belong
            together; the text says which and why.
    """
    certificate, key = credentials.tls_certificate, credentials.tls_key
    if certificate is None or key is None:
        return None
    for path in (certificate, key):
        _read(path)
    _expect_private(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Nobody is there to type a password.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        raise StartupError(_why_no_chain(certificate, key, error)) from None
    if credentials.tls_client_ca is not None:
        authorities = _read(credentials.tls_client_ca)
        try:
            context.load_verify_locations(cadata=authorities)
        except ssl.SSLError:
            raise StartupError(_NO_CERTIFICATE.format(credentials.tls_client_ca)) from None
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _why_no_chain(certificate: Path, key: Path, error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{key}: is not the private key of the certificate in {certificate}"
    if "-----BEGIN CERTIFICATE-----" not in _read(certificate):
        return _NO_CERTIFICATE.format(certificate)
    if "ENCRYPTED" in _read(key):
        return f"{key}: is protected by a password; store it without one, readable by its owner"
    if "PRIVATE KEY-----" not in _read(key):
        return f"{key}: holds no private key in PEM"
    return f"{certificate} and {key}: cannot be used: {error.reason or error}"


def expiry(certificate: Path) -> datetime:
    """When the first certificate of a PEM file ceases to be valid.

    Read from the DER as RFC 5280 section 4.1 has it, because Python's `ssl` shows the fields of a
    peer's certificate only.

    Raises:
        StartupError: there is none that can be read.
    """
    pem = _read(certificate)
    try:
        first = pem[pem.index("-----BEGIN CERTIFICATE-----") :]
        end = first.index("-----END CERTIFICATE-----") + len("-----END CERTIFICATE-----")
        return _not_after(ssl.PEM_cert_to_DER_cert(first[:end]))
    except (ValueError, IndexError, StopIteration, binascii.Error):
        raise StartupError(_NO_CERTIFICATE.format(certificate)) from None


def _not_after(der: bytes) -> datetime:
    _, whole = next(_elements(der))
    _, to_be_signed = next(_elements(whole))
    fields = [(tag, content) for tag, content in _elements(to_be_signed) if tag != _VERSION]
    # The serial number, the algorithm of the signature and the issuer stand before it.
    tag, validity = fields[3]
    if tag != _SEQUENCE:
        raise ValueError("the validity is no sequence")
    kind, text = list(_elements(validity))[1]
    return datetime.strptime(text.decode("ascii"), _TIMES[kind]).replace(tzinfo=UTC)


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """The tags and contents of the elements that follow one another."""
    at = 0
    while at < len(der):
        tag, size, at = der[at], der[at + 1], at + 2
        if size >= 0x80:
            width = size - 0x80
            size, at = int.from_bytes(der[at : at + width]), at + width
        yield tag, der[at : at + size]
        at += size


def key_digests(path: Path) -> frozenset[bytes]:
    """The SHA-256 digests of the API keys in a file.

    A line is a key of 16 to 512 printable ASCII characters without blanks, or ``sha256:`` and the
    64 hexadecimal digits of a key's digest. Empty lines and those that begin with ``#`` are
    comments.

    Raises:
        StartupError: the file cannot be read, everybody can read it, it holds no key, or a line
            is none; the text never quotes one.
    """
    text = _read(path)
    _expect_private(path)
    digests = set()
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if digest := _DIGEST.fullmatch(line):
            digests.add(bytes.fromhex(digest[1]))
        elif _KEY.fullmatch(line) and not line.startswith("sha256:"):
            digests.add(hashlib.sha256(line.encode()).digest())
        else:
            raise StartupError(
                f"{path}: line {number} is no API key: that is {LEAST_KEY_CHARACTERS} to 512 "
                "printable ASCII characters, or sha256: and 64 hexadecimal digits"
            )
    if not digests:
        raise StartupError(f"{path}: holds no API key, so nobody could send one")
    return frozenset(digests)


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise StartupError(f"{path}: cannot be read: {os.strerror(error.errno or 0)}") from None
    except UnicodeDecodeError:
        raise StartupError(f"{path}: is no text") from None


def _expect_private(path: Path) -> None:
    mode = path.stat().st_mode
    if mode & _OTHERS:
        raise StartupError(
            f"{path}: every user of this machine may read or change it (mode "
            f"{stat.S_IMODE(mode):04o}); take that away with chmod o-rwx"
        )
