"""Certificates and keys for a server of the tests, and connections to it over TLS."""

import ssl
from pathlib import Path
from typing import Final

import trustme
from serve.client import Connection

KEY: Final = "a-key-of-the-tests-1"
OTHER_KEY: Final = "a-key-of-the-tests-2"


def write_private(path: Path, text: str) -> Path:
    """A file that its owner alone can read, in one step."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    return new.rename(path)


class Authority:
    """Certificate authority for servers and clients.

    Args:
        folder: for the files.
    """

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self._folder = folder
        self.file = folder / "authority.pem"
        self._authority.cert_pem.write_to_path(str(self.file))

    def certify(self, name: str = "server") -> tuple[Path, Path]:
        """A new certificate for localhost and its key; files of an earlier one are replaced."""
        made = self._authority.issue_cert("localhost", "127.0.0.1")
        key = write_private(self._folder / f"{name}.key", made.private_key_pem.bytes().decode())
        chain = "".join(blob.bytes().decode() for blob in made.cert_chain_pems)
        return write_private(self._folder / f"{name}.pem", chain), key

    def client_context(self, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """Return a client's TLS context: the authority it trusts, and its own certificate."""
        context = ssl.create_default_context(cafile=self.file)
        if certificate is not None:
            context.load_cert_chain(*certificate)
        return context


class SecureConnection(Connection):
    """HTTP connection to localhost over TLS.

    Args:
        context: the client's.
    """

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        self.tls = context.wrap_socket(self._socket, server_hostname="localhost")
        self._socket = self.tls


def bearer(key: str = KEY) -> dict[str, str]:
    """The header with a key."""
    return {"Authorization": f"Bearer {key}"}
