"""Files of Unix sockets: made, replaced without a listener, left alone with one."""

import grp
import os
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tiers import exhaustive

from ringbatch.engine.config.settings import ServerConfig
from ringbatch.engine.supervisor.listener import address, refuse_new_connections
from ringbatch.engine.supervisor.listening_sockets import ListeningSockets
from ringbatch.engine.supervisor.unix_listener import holder, is_at_path, listen_at
from ringbatch.shm.errors import StartupError


@pytest.fixture
def path(short_folder: Path) -> str:
    return str(short_folder / "s")


def listen(path: str, mode: int = 0o660, group: str | None = None) -> socket.socket:
    return listen_at("unix_socket", path, mode, group)


def test_a_socket_listens_with_the_mode_and_group_that_are_wanted(path: str) -> None:
    own = grp.getgrgid(os.getgid()).gr_name
    with listen(path, 0o620, own) as bound:
        found = Path(path).stat()
        assert stat.S_ISSOCK(found.st_mode)
        assert (stat.S_IMODE(found.st_mode), found.st_gid) == (0o620, os.getgid())
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
        assert address(bound) == f"unix:{path}"
        assert is_at_path(bound, path)
        assert not is_at_path(bound, f"{path}x")
        assert holder(Path(path)) == os.getpid()


def test_the_file_of_a_dead_process_is_replaced(path: str) -> None:
    listen(path).close()
    assert Path(path).exists()
    assert holder(Path(path)) is None
    with listen(path) as bound:
        assert is_at_path(bound, path)


def test_a_file_with_a_living_listener_is_left_alone(path: str) -> None:
    with listen(path) as bound:
        with pytest.raises(StartupError, match=f"process {os.getpid()} listens on {path}"):
            listen(path)
        assert is_at_path(bound, path)


def test_a_listener_with_a_full_queue_is_alive(path: str) -> None:
    with ExitStack() as stack:
        bound = stack.enter_context(socket.socket(socket.AF_UNIX))
        bound.bind(path)
        bound.listen(0)
        kind = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
        while True:
            client = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            if client.connect_ex(path):
                break
        with pytest.raises(StartupError, match="listens on"):
            listen(path)


def test_a_file_that_is_no_socket_is_left_alone(path: str) -> None:
    Path(path).write_text("precious")
    with pytest.raises(StartupError, match="exists, and is no socket"):
        listen(path)
    assert Path(path).read_text() == "precious"


def test_an_obstacle_is_named(path: str) -> None:
    with pytest.raises(StartupError, match="its directory does not exist"):
        listen(f"{path}/none/s")
    with pytest.raises(StartupError, match="no group 'nobody-has-this'"):
        listen(path, group="nobody-has-this")
    with pytest.raises(StartupError, match="path too long"):
        listen(f"{path}{'s' * 107}")
    assert not Path(path).exists()


STARTER = """
import sys
from ringbatch.engine.supervisor.unix_listener import is_at_path, listen_at
from ringbatch.shm.errors import StartupError
print("ready", flush=True)
sys.stdin.readline()
try:
    bound = listen_at("unix_socket", sys.argv[1], 0o660, None)
except StartupError:
    print("refused", flush=True)
else:
    print("listens" if is_at_path(bound, sys.argv[1]) else "deaf", flush=True)
sys.stdin.readline()
"""


@exhaustive
def test_of_several_that_start_at_once_beside_a_stale_file_one_listens(path: str) -> None:
    for _ in range(3):
        listen(path).close()
        with ExitStack() as stack:
            starting = [
                stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, "-c", STARTER, path],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                        bufsize=1,
                    )
                )
                for _ in range(4)
            ]
            lines: list[str] = []
            for _ in range(2):
                lines = [_line(process) for process in starting]
                for process in starting:
                    assert process.stdin is not None
                    process.stdin.write("go\n")
            assert sorted(lines) == ["listens\n", "refused\n", "refused\n", "refused\n"]


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def sockets(**settings: object) -> ListeningSockets:
    return ListeningSockets(ServerConfig(**{"port": 0} | settings), None)  # type: ignore[arg-type]


def test_an_engine_may_have_a_unix_socket_beside_tcp_or_alone(path: str) -> None:
    both = sockets(unix_socket=path, grpc_unix_socket=f"{path}.grpc")
    with closing_unshared(both):
        assert len(both.http) == 2
        assert both.front is both.http[0]
        assert [use for use, _ in both.passed_on()] == ["http", "http", "http-unix", "grpc-unix"]
    alone = sockets(host=f"unix:{path}")
    with closing_unshared(alone):
        assert (alone.http, alone.front) == ([], alone.http_unix)
        assert not alone.has_half_open_connections()
    assert list(Path(path).parent.iterdir()) == []


def closing_unshared(found: ListeningSockets) -> "closing[_Closing]":
    return closing(_Closing(found))


class _Closing:
    def __init__(self, found: ListeningSockets) -> None:
        self._found = found

    def close(self) -> None:
        """Close them as an engine that shares them with nobody."""
        self._found.close(shared=False)


def test_a_file_that_another_engine_serves_behind_stays(path: str) -> None:
    found = sockets(host=f"unix:{path}")
    with found.front.dup():
        found.close(shared=True)
        assert holder(Path(path)) == os.getpid()


def test_no_client_connects_once_new_connections_are_refused(path: str) -> None:
    with listen(path) as bound, socket.socket(socket.AF_UNIX) as queued:
        queued.connect(path)
        assert refuse_new_connections(bound)
        with socket.socket(socket.AF_UNIX) as client, pytest.raises(FileNotFoundError):
            client.connect(path)
        bound.accept()[0].close()
