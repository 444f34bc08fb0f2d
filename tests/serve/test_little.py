"""A host that grants little: no privileges, no home, no folder to write to, 64 MiB of /dev/shm."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from serve.client import Connection, fast, instances, request
from serve.server import COMMAND, Server
from tiers import exhaustive, only

MIB = 1 << 20
IN_A_NAMESPACE = ("unshare", "--map-root-user", "--mount")
SCRIPT = """
set -e
mount -t tmpfs -o size=$SHM_SIZE,mode=1777 tmpfs /dev/shm
for folder in /tmp /var/tmp; do
    mount --rbind $folder $folder
    mount -o remount,bind,ro $folder
done
! touch /tmp/anything 2>&-
cd /proc
exec "$@"
"""
"""Script that runs the server as root of a namespace, which is nobody outside."""


def possible() -> bool:
    """Return whether this host allows such namespaces."""
    there = subprocess.run([*IN_A_NAMESPACE, "true"], capture_output=True, check=False)
    return there.returncode == 0


pytestmark = pytest.mark.skipif(not possible(), reason="no user namespaces on this host")


@pytest.fixture
def start_with_little(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """`start_with_little(shm, *arguments)`: a server that has so much of /dev/shm."""
    servers = []

    def start(shm: str, *arguments: str) -> Server:
        environment = ("env", "--unset=HOME", "--unset=TMPDIR", f"SHM_SIZE={shm}")
        under = (*environment, *IN_A_NAMESPACE, "sh", "-c", SCRIPT, "sh")
        servers.append(Server(tmp_path, *arguments, "--port", "0", program=(*under, *COMMAND)))
        return servers[-1]

    yield start
    for server in servers:
        server.destroy()


@exhaustive
@pytest.mark.parametrize(
    "arguments", only({"many": (("--frontends", "8", "--grpc-port", "0"),), "usual": ((),)}, "many")
)
def test_it_starts_serves_and_stops(
    start_with_little: Callable[..., Server], arguments: tuple[str, ...]
) -> None:
    server = start_with_little("64m", *arguments).wait_ready()
    with Connection(server.port) as connection:
        assert connection.ask(request("/v2/health/ready", method="GET")).status == 200
        assert connection.ask(fast("digits", instances([0.0] * 64))).status == 200
        too_large = request("/v1/models/digits:predict", headers={"Content-Length": str(16 * MIB)})
        answer = connection.ask(too_large)
    limit = re.search(r"max_request_bytes = (\d+)", server.stderr)
    assert limit
    assert answer.status == 413
    assert limit[1] in answer.error
    assert server.stop() == 0
    assert "Traceback" not in server.stderr


def test_more_than_there_is_is_refused_in_words(start_with_little: Callable[..., Server]) -> None:
    server = start_with_little("64m", "--max-request-bytes", str(64 * MIB))
    assert server.process.wait() == 2
    assert "/dev/shm has 64 MiB free" in server.stderr.splitlines()[-1]
