"""Files and a group that the server's settings name, as a start will use them."""

import grp
import os
import ssl
from collections.abc import Iterator
from pathlib import Path

from ringbatch.engine.config.settings import ServerConfig


def unusable(server: ServerConfig) -> list[str]:
    """Return a line for each that cannot be used here: what is wrong, and what to do."""
    return [f"[server] {key}: {found}; {do}" for key, found, do in _unusable(server)]


def _unusable(server: ServerConfig) -> Iterator[tuple[str, str, str]]:
    """Yield a setting, what is wrong with its value, and what to do."""
    log, authority, group = server.payload_log, server.payload_log_ca, server.unix_socket_group
    if log is not None and "://" not in log and (why := _why_not_written(Path(log))):
        yield "payload_log", f"{log}: {why}", "choose another file, or mend that"
    if authority is not None and (why := _why_no_authority(authority)):
        yield "payload_log_ca", f"{authority}: {why}", "name a file of certificates in PEM"
    if group is not None and not _is_group(group):
        do = "choose another, or make it with groupadd"
        yield "unix_socket_group", f"this machine has no group {group!r}", do


def _why_not_written(path: Path) -> str:
    """Return why a file cannot be appended to, or made; empty if it can."""
    if path.is_dir():
        return "it is a directory"
    if path.exists():
        return "" if os.access(path, os.W_OK) else "this user may not write it"
    if not path.parent.is_dir():
        return "its directory does not exist"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return "this user may not make files in its directory"
    return ""


def _why_no_authority(path: Path) -> str:
    """Return why certificates cannot be read; empty if they can."""
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        return str(error.strerror or error)
    return ""


def _is_group(name: str) -> bool:
    try:
        grp.getgrnam(name)
    except KeyError:
        return False
    return True
