"""The socket on which an engine takes orders, with whatever may come to it."""

import gc
import os
import resource
import signal
import socket
import stat
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from ringbatch.engine.supervisor import handover, order_client
from ringbatch.engine.supervisor.control import ControlServer
from ringbatch.engine.supervisor.handover import OldEngine
from ringbatch.engine.supervisor.loop import Loop
from ringbatch.engine.supervisor.order_client import ask
from ringbatch.shm.errors import StartupError
from ringbatch.shm.host.control_socket import (
    MAX_LINE_BYTES,
    Order,
    Report,
    read_report,
    socket_path,
)

RELOAD = b'{"do":"reload","model":null}\n'


def fail(text: str) -> None:
    """Take the place of a user whom no word is to reach, because the wait is short."""
    raise AssertionError(text)


class Site:
    """A socket, and a loop as the supervisor's that waits for what comes to it.

    Args:
        takes: whether it takes orders from the beginning.
    """

    def __init__(self, *, takes: bool = True) -> None:
        # Not an engine's: the start of any engine sweeps up a socket without a segment.
        self.name = f"/ringbatch-test-site.site.{os.getpid()}.{os.urandom(8).hex()}"
        self.path = Path(socket_path(self.name))
        self.orders: list[tuple[Order, Callable[[Report], None]]] = []
        self.given: list[socket.socket] = []
        self.loop = Loop()
        self.server = ControlServer(self.name, self.loop)
        if takes:
            self.begin()
        self._reports: deque[tuple[Callable[[Report], None], Report]] = deque()
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
            while self._reports:
                reply, report = self._reports.popleft()
                reply(report)

    def report(self, report: Report) -> None:
        """Have the loop's thread report the first order's end."""
        self._reports.append((self.orders[0][1], report))

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
    assert ask(site.name, Order("load", "m"), fail) == Report("done", ("m",))
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
    assert ask(site.name, Order("reload", None), fail).end == "done"
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
    assert ask(site.name, Order("load", "m"), fail) == Report("done", ("m",))
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
        assert ask(site.name, Order("reload", None), fail).end == "done"
        (_, reply), _ = site.orders
        longest = Report("done", ("x" * (MAX_LINE_BYTES - 100),))
        reply(longest)
        line = b""
        while data := late.recv(MAX_LINE_BYTES):
            line += data
        assert read_report(line) == longest


def test_an_engine_that_is_gone_is_named(site: Site) -> None:
    gone = "/ringbatch.one.2.0123456789abcdef"
    with pytest.raises(StartupError, match=r"takes no orders: process 2 ends, or has ended$"):
        ask(gone, Order("reload", None), fail)


def test_a_handover_from_an_engine_that_ends_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = "/ringbatch.one.2.0123456789abcdef"
    monkeypatch.setattr(handover, "of_any_version", lambda _engine: gone)
    with pytest.raises(StartupError, match=r"takes no orders: process 2 ends, or has ended$"):
        OldEngine("one", 1.0)


def test_an_engine_that_starts_and_has_no_control_socket_yet_says_when_it_takes_orders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(order_client, "starts", lambda _name: True)
    with pytest.raises(StartupError, match=r"process 2 starts; try again once it is ready$"):
        ask("/ringbatch.one.2.0123456789abcdef", Order("reload", None), fail)


def test_another_failure_of_the_connection_is_the_kernels() -> None:
    error = OSError(24, "Too many open files")
    assert order_client.refusal_reason("/ringbatch.1.2.nobody", error) == "Too many open files"


# An order that takes long


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are late at once."""
    monkeypatch.setattr(order_client, "LATE_S", 0.02)


@pytest.fixture
def impatient(hasty: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are late at once, and so are answers to empty lines."""
    monkeypatch.setattr(order_client, "ANSWER_S", 0.02)


@contextmanager
def unanswered(pid: int) -> Iterator[str]:
    """The name of an engine whose supervisor has that process id and takes no connection."""
    name = f"/ringbatch-test-site.site.{pid}.{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(socket_path(name))
        try:
            listener.listen()
            yield name
        finally:
            os.unlink(socket_path(name))


@pytest.mark.usefixtures("hasty")
def test_a_long_wait_is_explained_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    looks: list[str] = []
    usual = order_client.supervisor_state

    def state(name: str) -> tuple[str, bool]:
        looks.append(name)
        # The looks behind the first one find the same.
        if len(looks) == 4:
            site.report(Report("done", ()))
        return usual(name)

    monkeypatch.setattr(order_client, "supervisor_state", state)
    assert ask(site.name, Order("load", "later"), said.append) == Report("done", ())
    assert said == [
        f"the engine's supervisor, process {os.getpid()}, carries out its orders; waiting for it"
    ]


@pytest.mark.usefixtures("impatient")
def test_a_supervisor_that_hangs_is_named_and_given_up() -> None:
    said: list[str] = []
    with (
        unanswered(os.getpid()) as name,
        pytest.raises(StartupError, match="at 5 looks in a row; it carries the order out"),
    ):
        ask(name, Order("reload", None), said.append)
    (words,) = said
    assert f"process {os.getpid()}, hangs (kill -9 {os.getpid()} ends the engine" in words


@pytest.mark.usefixtures("impatient")
def test_a_supervisor_that_is_stopped_is_named_and_given_up() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            said: list[str] = []
            with (
                unanswered(process.pid) as name,
                pytest.raises(StartupError, match=f"is stopped .kill -CONT {process.pid} lets"),
            ):
                ask(name, Order("reload", None), said.append)
            assert len(said) == 1
        finally:
            process.kill()


@pytest.mark.usefixtures("impatient")
def test_an_engine_that_starts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_client, "starts", lambda _name: True)
    site = Site(takes=False)
    said: list[str] = []

    def remember(text: str) -> None:
        said.append(text)
        site.begin()

    assert ask(site.name, Order("load", "m"), remember) == Report("done", ("m",))
    assert said[0].endswith("starts, and takes orders once it is ready; waiting for it")
    site.end()


@pytest.mark.usefixtures("hasty")
def test_a_supervisor_that_answers_in_time_again_is_waited_for(site: Site) -> None:
    silent = iter([True] * 4 + [False] + [True] * 4 + [False])
    seen: list[str] = []

    def state(_name: str) -> tuple[str, bool]:
        try:
            return "", next(silent)
        except StopIteration:
            site.report(Report("done", ()))
            return "", False

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(order_client, "supervisor_state", state)
        assert ask(site.name, Order("load", "later"), seen.append).end == "done"
    assert seen == []


@pytest.mark.usefixtures("impatient")
def test_a_handover_from_a_supervisor_that_hangs_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_ANSWERS_WITHIN_S", 0.02)
    with unanswered(os.getpid()) as name:
        monkeypatch.setattr(handover, "of_any_version", lambda _engine: name)
        with pytest.raises(StartupError, match=r"has not answered within 0\.02 s: .* hangs \(kill"):
            OldEngine("prod", 1.0)


def test_an_order_that_finds_the_queue_full_is_refused() -> None:
    with unanswered(os.getpid()) as name, ExitStack() as held:
        with suppress(BlockingIOError):
            while True:
                waiting = held.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(socket_path(name))
        with pytest.raises(StartupError, match="takes no orders: too many wait already"):
            ask(name, Order("reload", None), fail)
