"""Files and a group that the server's settings name, as a start will use them."""

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

from ringbatch.engine.config.settings import ServerConfig
from ringbatch.engine.supervisor.unix_listener import group_number
from ringbatch.shm.errors import StartupError


def unusable(server: ServerConfig) -> Iterator[str]:
    """Yield a line for each that cannot be used here: what is wrong, and what to do."""
    log, authority, group = server.payload_log, server.payload_log_ca, server.unix_socket_group
    if log is not None and "://" not in log and (why := _why_not_written(Path(log))):
        yield f"[server] payload_log: {log}: {why}; choose another file, or mend that"
    if authority is not None and (why := _why_no_authority(authority)):
        do = "name a file of certificates in PEM"
        yield f"[server] payload_log_ca: {authority}: {why}; {do}"
    if group is not None:
        try:
            group_number(group)
        except StartupError as error:
            yield str(error)


def why_not_made(path: Path) -> str:
    """Return why this user cannot make a file there; empty if it can."""
    if not path.parent.is_dir():
        return "its directory does not exist"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return "this user may not make files in its directory"
    return ""


def _why_not_written(path: Path) -> str:
    """Return why a file cannot be appended to, or made; empty if it can."""
    if path.is_dir():
        return "it is a directory"
    if path.exists():
        return "" if os.access(path, os.W_OK) else "this user may not write it"
    return why_not_made(path)


def _why_no_authority(path: Path) -> str:
    """Return why certificates cannot be read; empty if they can."""
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        return str(error.strerror or error)
    return ""
