"""HAProxy before one server, naming its clients in X-Forwarded-For."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from host.children import tied
from host.network_namespaces import path_of
from host.server import HOST, free_port

_START_LIMIT_S = 10.0
_CONFIGURATION = """\
global
    maxconn 4096
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option forwardfor
    http-reuse always
frontend clients
    bind {host}:{port}
    default_backend server
backend server
    server one {host}:{server} source {source}
"""


@contextmanager
def haproxy(folder: Path, server_port: int, source: str) -> Iterator[int]:
    """Run HAProxy; yield its port.

    Args:
        folder: for its files.
        server_port: of the server behind it.
        source: address from which the server sees it.
    """
    program, port = path_of("haproxy"), free_port()
    assert program is not None, "callers look for it"
    file, log = folder / "haproxy.cfg", folder / "haproxy.log"
    file.write_text(_CONFIGURATION.format(host=HOST, port=port, server=server_port, source=source))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "-db", "-f", str(file)], stdout=output, stderr=output, preexec_fn=tied()
        )
    try:
        give_up_s = time.monotonic() + _START_LIMIT_S
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > give_up_s:
                raise RuntimeError(f"HAProxy does not start:\n{log.read_text()}")
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
