"""Credential files of server and clients: certificates and keys, read alike by all processes.

The supervisor reads them before it starts anything, so that a bad one ends the start in words; the
frontends read them again, to use them, and whenever they have changed.
"""

import os
import ssl
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.api_key_lines import KeyOptions, read_keys

_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH
_REVOKED: Final = "-----BEGIN X509 CRL-----"
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_SECRET: Final = "PRIVATE KEY-----"
_OPENSSL_WORDS: Final = {
    "EE_KEY_TOO_SMALL": "the key is too short, as RSA of fewer than 2,048 bits",
    "CA_KEY_TOO_SMALL": "the key of an authority in the chain is too short",
    "CA_MD_TOO_WEAK": "a signature in the chain is too weak, as by SHA-1",
}
"""Reasons of OpenSSL, in the words of users."""
_NO_CERTIFICATE: Final = "{}: holds no certificate in PEM"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Paths of credential files; None for a feature that the server does not use.

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
        """Return the paths that are set, by the names of their attributes."""
        found = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: path for name, path in found if path is not None}

    def tls_files(self) -> tuple[Path, ...]:
        """Return the paths of the files that `server_tls` reads."""
        return tuple(path for name, path in self.files().items() if name.startswith("tls_"))


class Tls(NamedTuple):
    """TLS material of a server, read once and known to belong together.

    Attributes:
        certificate: and those between it and the authority, PEM.
        key: the certificate's, PEM.
        authorities: of clients' certificates, PEM; None if clients need none.
        context: all of that, for TLS 1.2 and 1.3.
    """

    certificate: bytes
    key: bytes
    authorities: bytes | None
    context: ssl.SSLContext


def server_tls(credentials: Credentials, protocols: Sequence[str] = ("http/1.1",)) -> Tls | None:
    """Read what a listening socket needs; None if there is no certificate.

    Args:
        credentials: where the files are.
        protocols: that are spoken, as ALPN names them.

    Raises:
        StartupError: a file cannot be read or is not what it should be, or they do not belong
            together; the text says which and why.
    """
    certificate, key = credentials.tls_certificate, credentials.tls_key
    if certificate is None or key is None:
        return None
    chain, secret = _read(certificate), _read(key, private=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols([*protocols])
    try:
        _load(context, chain, secret)
    except ssl.SSLError as error:
        raise StartupError(_why_no_chain(certificate, chain, key, secret, error)) from None
    authorities = None
    if credentials.tls_client_ca is not None:
        authorities = _read(credentials.tls_client_ca)
        if _REVOKED in authorities:
            # OpenSSL would take the list and not ask it, so revoked certificates would pass.
            raise StartupError(
                f"{credentials.tls_client_ca}: holds a list of revoked certificates, which is not "
                "read here; have a proxy check it, or sign clients anew by another authority, and "
                "name that one alone"
            )
        try:
            with _in_memory(authorities) as trusted:
                context.load_verify_locations(trusted)
        except ssl.SSLError:
            raise StartupError(_NO_CERTIFICATE.format(credentials.tls_client_ca)) from None
        context.verify_mode = ssl.CERT_REQUIRED
    own = None if authorities is None else authorities.encode()
    return Tls(chain.encode(), secret.encode(), own, context)


def _load(context: ssl.SSLContext, chain: str, secret: str) -> None:
    """Give a context what was read: it takes files alone, and those may be others by now."""
    with _in_memory(chain) as certificate, _in_memory(secret) as key:
        # Nobody is there to type a password.
        context.load_cert_chain(certificate, key, password="")


@contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Yield the path of a memory file with that text, which no other process can open."""
    try:
        file = os.fdopen(os.memfd_create("ringbatch"), "w", encoding="utf-8")
    except OSError as error:
        raise StartupError(f"TLS cannot be set up: {os.strerror(error.errno or 0)}") from None
    with file:
        file.write(text)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _why_no_chain(
    certificate: Path, chain: str, key: Path, secret: str, error: ssl.SSLError
) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"{key}: is not the private key of the certificate in {certificate}"
    if _BEGIN not in chain:
        if _SECRET in chain and _BEGIN in secret:
            return f"{certificate}: holds the private key, and {key} the certificate; exchange them"
        return _NO_CERTIFICATE.format(certificate)
    if "ENCRYPTED" in secret:
        return f"{key}: is protected by a password; store it without one, readable by its owner"
    if _SECRET not in secret:
        return f"{key}: holds no private key in PEM"
    for path, text in ((certificate, chain), (key, secret)):
        if text.count("-----BEGIN ") != text.count("-----END "):
            return f"{path}: ends within what it holds, as a file that was not copied as a whole"
    why = _OPENSSL_WORDS.get(error.reason or "", "what they hold is damaged")
    return f"{certificate} and {key}: cannot be used: {why} ({error.reason or error})"


def objection(tls: Tls) -> str | None:
    """Return why any client would refuse a certificate, regardless of trust and name.

    Such as ``certificate has expired``, in OpenSSL's words; None if there is nothing to object.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    with _in_memory(tls.certificate.decode()) as trusted:
        client.load_verify_locations(trusted)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = tls.context.wrap_bio(to_server, to_client, server_side=True)
    try:
        # The server's first answer carries the certificate; nothing after it is needed.
        for end in (asking, answering, asking):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    return None


def key_digests(path: Path) -> dict[bytes, KeyOptions]:
    """Return the options of the API keys in a file, by their SHA-256 digests.

    `ringbatch.shm.host.api_key_lines` has what may stand in it.

    Raises:
        StartupError: the file cannot be read, every user can read it, it holds no key, or a line
            is wrong; the text never quotes a key.
    """
    text = _read(path, private=True)
    try:
        found = read_keys(text)
    except StartupError as error:
        raise StartupError(f"{path}: {error}") from None
    if not found:
        raise StartupError(f"{path}: holds no API key, so nobody could send one")
    return found


def _read(path: Path, *, private: bool = False) -> str:
    try:
        # Editors of Windows put a mark first, which is no part of the text.
        with path.open(encoding="utf-8-sig") as file:
            text = file.read()
            if private and (_BEGIN not in text or _SECRET in text):
                # A certificate alone is no secret; what is wrong with it is that it is no key.
                _expect_private(path, os.fstat(file.fileno()).st_mode)
            return text
    except OSError as error:
        raise StartupError(f"{path}: cannot be read: {os.strerror(error.errno or 0)}") from None
    except UnicodeDecodeError:
        raise StartupError(
            f"{path}: is no text in UTF-8; certificates and their keys are to be in PEM, which "
            "openssl writes with -outform pem, and API keys one a line"
        ) from None


def _expect_private(path: Path, mode: int) -> None:
    if mode & _OTHERS:
        raise StartupError(
            f"{path}: every user of this machine may read or change it (mode "
            f"{stat.S_IMODE(mode):04o}); take that away with chmod o-rwx"
        )
