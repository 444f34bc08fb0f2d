"""Socket by which frontends pass payloads to the control process, and the flags for it.

The supervisor holds both ends, so waiting payloads outlive any of these processes.
"""

import socket

from ringbatch.engine.config.settings import ServerConfig


class PayloadPassage:
    """Both ends of the socket for payloads.

    Attributes:
        reader, writer: the ends for the control process and for frontends; None without a payload
            log.

    Args:
        server: the settings.
    """

    def __init__(self, server: ServerConfig) -> None:
        self._server = server
        self.reader: socket.socket | None = None
        self.writer: socket.socket | None = None
        if server.payload_log is not None:
            # Messages stay whole, and wait up to a bound.
            self.reader, self.writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    @property
    def keeping_words(self) -> list[str]:
        """Flags of a frontend."""
        server = self._server
        if self.writer is None:
            return []
        return [
            f"--payload-fd={self.writer.fileno()}",
            f"--payload-sample={server.payload_log_sample}",
            f"--payload-body-bytes={server.payload_log_body_bytes}",
            *(f"--payload-header={name}" for name in server.payload_log_headers),
            f"--payload-mode={server.payload_log_mode}",
            *["--payload-failures"] * server.payload_log_failures,
            f"--payload-source={server.payload_log_source or f'/ringbatch/{server.name}'}",
            *(f"--payload-attribute={text}" for text in server.payload_log_attributes),
            *["--payload-lines"] * ("://" not in str(server.payload_log)),
        ]

    @property
    def delivery_words(self) -> list[str]:
        """Flags of the control process."""
        server = self._server
        if self.reader is None:
            return []
        words = [
            f"--payload-fd={self.reader.fileno()}",
            f"--payload-log={server.payload_log}",
            f"--payload-file-bytes={server.payload_log_file_bytes}",
            f"--payload-files={server.payload_log_files}",
        ]
        authority = server.payload_log_ca
        return words if authority is None else [*words, f"--payload-ca={authority}"]

    def close(self) -> None:
        """Close both ends here."""
        for end in (self.reader, self.writer):
            if end is not None:
                end.close()
