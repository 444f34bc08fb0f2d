"""The socket on which an engine takes orders, with whatever may come to it."""

import os
import selectors
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringbatch.engine.control import ControlServer, ask
from ringbatch.shm.control import MAX_LINE_BYTES, Order, Report, socket_path
from ringbatch.shm.errors import StartupError
from ringbatch.shm.owner import Owner

RELOAD = b'{"do":"reload","model":null}\n'


class Site:
    """A socket, and a loop as the supervisor's that waits for what comes to it."""

    def __init__(self) -> None:
        own = Owner.current()
        self.name = f"/ringbatch.{own.pid}.{own.start_time}.{os.urandom(4).hex()}"
        self.path = Path(socket_path(self.name))
        self.orders: list[tuple[Order, Callable[[Report], None]]] = []
        self.selector = selectors.DefaultSelector()
        self.server = ControlServer(self.name, self.selector, self._take)
        self._going = True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _take(self, order: Order, reply: Callable[[Report], None]) -> None:
        self.orders.append((order, reply))
        if order.model != "later":
            reply(Report("done", (str(order.model),)))

    def _run(self) -> None:
        while self._going:
            for key, _ in self.selector.select(0.01):
                key.data()

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.path))
        return connection

    def end(self) -> None:
        self._going = False
        self._thread.join()
        self.server.close()
        self.selector.close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.end()
    assert not site.path.exists()


def test_an_order_is_taken_and_answered(site: Site) -> None:
    assert ask(site.name, Order("load", "m")) == Report("done", ("m",))
    assert [order for order, _ in site.orders] == [Order("load", "m")]


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
def test_what_is_no_order_is_refused(site: Site, data: bytes) -> None:
    with site.connect() as connection:
        connection.sendall(data)
        assert b"that is no order" in connection.recv(1000)
    assert site.orders == []


def test_who_leaves_or_says_nothing_harms_nobody(site: Site) -> None:
    silent = [site.connect() for _ in range(3)]
    with site.connect() as gone:
        gone.sendall(b'{"do":"load","model":"later"}\n')
    assert ask(site.name, Order("reload", None)).end == "done"
    (_, reply), _ = site.orders
    reply(Report("done", ()))
    for connection in silent:
        connection.close()


def test_an_engine_that_is_gone_is_named(site: Site) -> None:
    with pytest.raises(StartupError, match="the engine takes no orders"):
        ask("/ringbatch.1.2.nobody", Order("reload", None))
