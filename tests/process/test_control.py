"""The socket on which an engine takes orders, with whatever may come to it."""

import gc
import os
import resource
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ringbatch.engine.supervisor.control import ControlServer, ask
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.control_socket import (
    MAX_LINE_BYTES,
    Order,
    Report,
    read_report,
    socket_path,
)

RELOAD = b'{"do":"reload","model":null}\n'


class Site:
    """A socket, and a loop as the supervisor's that waits for what comes to it.

    Args:
        takes: whether it takes orders from the beginning.
    """

    def __init__(self, *, takes: bool = True) -> None:
        # Not an engine's: the start of any engine sweeps up a socket without a segment.
        self.name = f"/ringbatch-test-site.{os.getpid()}.{os.urandom(8).hex()}"
        self.path = Path(socket_path(self.name))
        self.orders: list[tuple[Order, Callable[[Report], None]]] = []
        self.given: list[socket.socket] = []
        self.loop = Loop()
        self.server = ControlServer(self.name, self.loop)
        if takes:
            self.begin()
        self._going = True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def begin(self) -> None:
        """Take orders from now on."""
        self.server.take_orders(self._take, self.given.append)

    def _take(self, order: Order, reply: Callable[[Report], None]) -> None:
        self.orders.append((order, reply))
        if order.model != "later":
            reply(Report("done", (str(order.model),)))

    def _run(self) -> None:
        while self._going:
            self.loop.turn(0.01)

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.path))
        return connection

    def end(self) -> None:
        self._going = False
        self._thread.join()
        self.server.close()
        assert not self.loop.broken


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.end()
    assert not site.path.exists()


def test_an_order_is_taken_and_answered(site: Site) -> None:
    assert ask(site.name, Order("load", "m")) == Report("done", ("m",))
    assert [order for order, _ in site.orders] == [Order("load", "m")]


def test_an_order_that_comes_before_any_is_taken_waits() -> None:
    site = Site(takes=False)
    with site.connect() as early, site.connect() as gone:
        early.sendall(RELOAD)
        gone.close()
        site.begin()
        assert early.recv(100).startswith(b'{"end": "done"')
    site.end()


def test_a_caller_of_an_engine_that_never_serves_hears_of_its_end() -> None:
    site = Site(takes=False)
    with site.connect() as early:
        early.sendall(RELOAD)
        site.end()
        with suppress(ConnectionResetError):
            assert early.recv(100) == b""


def test_nobody_else_may_connect(site: Site) -> None:
    assert stat.S_IMODE(site.path.stat().st_mode) == 0o600


def test_orders_in_pieces_and_at_once_are_each_answered(site: Site) -> None:
    with site.connect() as slow, site.connect() as quick:
        slow.sendall(RELOAD[:5])
        quick.sendall(RELOAD)
        assert quick.recv(100).startswith(b'{"end": "done"')
        slow.sendall(RELOAD[5:])
        assert slow.recv(100).startswith(b'{"end": "done"')


@pytest.mark.parametrize("data", [b"\n", b"GET / HTTP/1.1\r\n", b"x" * MAX_LINE_BYTES])
def test_an_invalid_order_is_refused(site: Site, data: bytes) -> None:
    with site.connect() as connection:
        connection.sendall(data)
        assert b"that is no order" in connection.recv(1000)
    assert site.orders == []


def test_a_silent_or_leaving_caller_harms_nobody(site: Site) -> None:
    silent = [site.connect() for _ in range(3)]
    with site.connect() as gone:
        gone.sendall(b'{"do":"load","model":"later"}\n')
    assert ask(site.name, Order("reload", None)).end == "done"
    (_, reply), _ = site.orders
    reply(Report("done", ()))
    for connection in silent:
        connection.close()


def test_without_descriptors_newcomers_are_turned_away_and_the_loop_sleeps() -> None:
    site = Site()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    # Otherwise garbage of other tests could give descriptors back during this test.
    gc.collect()
    gc.disable()
    try:
        connection = socket.socket(socket.AF_UNIX)
        # Above what is open already, which is much where other tests came before.
        resource.setrlimit(resource.RLIMIT_NOFILE, (connection.fileno() + 64, limits[1]))
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        connection.connect(str(site.path))
        connection.settimeout(30)
        assert connection.recv(100) == b""
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        connection.close()
        gc.enable()
    assert ask(site.name, Order("load", "m")) == Report("done", ("m",))
    site.end()
    site.server.close()


def test_a_caller_behind_too_many_orders_is_refused(site: Site) -> None:
    waiting = [site.connect() for _ in range(128)]
    try:
        for connection in waiting:
            connection.sendall(b'{"do":"load","model":"later"}\n')
        with site.connect() as late:
            assert read_report(late.recv(MAX_LINE_BYTES)) == Report(
                "failed", ("too many orders wait already; try again later",)
            )
    finally:
        for connection in waiting:
            connection.close()


def test_the_longest_answer_fits_though_nobody_reads_it_yet(site: Site) -> None:
    with site.connect() as late:
        late.sendall(b'{"do":"load","model":"later"}\n')
        assert ask(site.name, Order("reload", None)).end == "done"
        (_, reply), _ = site.orders
        longest = Report("done", ("x" * (MAX_LINE_BYTES - 100),))
        reply(longest)
        line = b""
        while data := late.recv(MAX_LINE_BYTES):
            line += data
        assert read_report(line) == longest


def test_an_engine_that_is_gone_is_named(site: Site) -> None:
    with pytest.raises(StartupError, match="the engine takes no orders"):
        ask("/ringbatch.1.2.nobody", Order("reload", None))
