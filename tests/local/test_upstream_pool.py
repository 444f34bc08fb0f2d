"""Pool of several model servers: the choice of a server, and repeated requests."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from upstream_pool_harness import FAR_NS, Clock, failure, post

from ringbatch.engine.models.model import Options
from ringbatch.engine.runtimes.upstreams.connection import Address, Answer, Unreached
from ringbatch.engine.runtimes.upstreams.names import Names
from ringbatch.engine.runtimes.upstreams.pool import Manner, Pool
from ringbatch.engine.runtimes.upstreams.tls import tls_context
from ringbatch.shm.descriptors import WorkerState, WorkerWords
from ringbatch.shm.errors import StartupError
from ringbatch.shm.forward_envelope import read_refusal
from ringbatch.shm.host import background
from ringbatch.shm.layout import Layout
from ringbatch.shm.segment import Segment
from ringbatch.shm.slot import Status
from ringbatch.shm.upstreams import DOWN_AFTER, OwnUpstreams, ServerCounts

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
BUSY = b"HTTP/1.1 503 Busy\r\nretry-after: 7\r\ncontent-length: 4\r\n\r\nbusy"
MANY = b"HTTP/1.1 429 Many\r\nretry-after: 9\r\ncontent-length: 4\r\n\r\nmany"
BROKEN = b"HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n"
GATEWAY = b"HTTP/1.1 502 Bad\r\ncontent-length: 0\r\n\r\n"
FALLS_SILENT = b""
HANGS_UP = b"HANG UP"


class Server:
    """Model server that answers every request with the same bytes, until they are changed.

    Attributes:
        answer: the bytes; none for no answer, `HANGS_UP` at its end to close the connection.
        asked: first lines of the requests, in order.
        probed: bytes of its answer to GET.
    """

    def __init__(self, answer: bytes = OK, tls: ssl.SSLContext | None = None) -> None:
        self.answer = self.probed = answer
        self.asked: list[bytes] = []
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def posts(self) -> int:
        return sum(line.startswith(b"POST") for line in self.asked)

    def close(self) -> None:
        """Close the server, as if its process were killed."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            self._open.append(connection)
            with connection, connection.makefile("rb") as lines:
                while first := lines.readline():
                    size = 0
                    while (line := lines.readline()) != b"\r\n":
                        name, _, value = line.partition(b":")
                        size = int(value) if name.lower() == b"content-length" else size
                    lines.read(size)
                    self.asked.append(first)
                    answer = self.probed if first.startswith(b"GET") else self.answer
                    connection.sendall(answer.removesuffix(HANGS_UP))
                    if answer.endswith(HANGS_UP):
                        return


Make = Callable[..., Server]


@pytest.fixture
def server() -> Iterator[Make]:
    with ExitStack() as stack:

        def make(answer: bytes = OK, tls: ssl.SSLContext | None = None) -> Server:
            made = Server(answer, tls)
            stack.callback(made.close)
            return made

        yield make


class Attended(Pool):
    """Pool that looks after its servers only when a test lets it take a turn."""

    def _keep(self) -> bool:
        """Do nothing by itself."""
        return False


def pool_of(*ports: int, always: bool = False, clock: Clock | None = None) -> Pool:
    """Return a pool of servers on this host, tried in their order if they are equal."""
    names = Names("m", [Address("127.0.0.1", port, "") for port in ports])
    draws = iter(range(1_000_000))
    return Attended(names, Manner("m", "/up", always), lambda: next(draws), clock or Clock())


def shared(*ports: int) -> tuple[Pool, Pool]:
    """Return the pools of two workers with the same servers."""
    layout = Layout(lanes=1, slots=1, lane_bytes=4096, workers=2, models=1, model_table_bytes=64)
    segment = Segment.local(layout, ())
    pools = pool_of(*ports), pool_of(*ports)
    for number, pool in enumerate(pools):
        segment.words[layout.worker(number) + WorkerWords.STATE] = WorkerState.READY
        pool.share(OwnUpstreams(segment.words, layout, number))
    return pools


def counts(pool: Pool) -> list[ServerCounts]:
    records = pool._records
    found = {server.name: server for server in records.counts([0], time.monotonic_ns())}
    return [found[endpoint.name] for endpoint in pool._known]


def downs(pool: Pool) -> list[bool]:
    known = [endpoint.tag for endpoint in pool._known]
    states = pool._records.own_states(known, time.monotonic_ns())
    return [states[tag].down for tag in known]


@pytest.fixture
def gone(free_port_factory: Callable[[], int]) -> Callable[[], int]:
    """`gone()`: a port at which nobody listens."""
    return free_port_factory


def test_batches_go_to_the_server_with_the_fewest(server: Make) -> None:
    first, second = server(FALLS_SILENT), server()
    pool, other = shared(first.port, second.port)
    thread = threading.Thread(target=lambda: failure(pool))
    thread.start()
    while not first.posts:
        thread.join(0.01)
    assert [post(other).status for _ in range(4)] == [200] * 4
    first.close()
    thread.join()
    assert (first.posts, second.posts) == (1, 4)


def test_a_server_that_takes_no_connection_costs_no_batch(
    server: Make, gone: Callable[[], int]
) -> None:
    second = server()
    pool = pool_of(gone(), second.port)
    assert [post(pool).body for _ in range(3)] == [b"ok"] * 3
    assert downs(pool) == [True, False]
    assert [one[1:4] for one in counts(pool)] == [(1, 1, 0), (3, 0, 0)]


def test_an_answer_that_is_too_large_is_no_failure_of_its_server(
    server: Make, gone: Callable[[], int]
) -> None:
    large = server(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n")
    pool, _ = shared(large.port, gone())
    for _ in range(DOWN_AFTER):
        assert str(failure(pool)).endswith(" is over 16384 bytes, 4 times lane_bytes")
    assert downs(pool)[0] is False
    assert large.posts == DOWN_AFTER


@pytest.mark.parametrize("lacks", [MemoryError, RuntimeError, ValueError])
def test_servers_are_looked_after_again_after_a_turn_that_failed(
    monkeypatch: pytest.MonkeyPatch, lacks: type[Exception]
) -> None:
    def turn(_pool: Pool) -> None:
        turns.append(1)
        if len(turns) == 1:
            raise lacks
        again.set()

    turns: list[int] = []
    again = threading.Event()
    monkeypatch.setattr(Pool, "turn", turn)
    monkeypatch.setattr(background, "AFTER_ERROR_S", 0.0)
    names = Names("m", [Address("127.0.0.1", port, "") for port in (1, 2)])
    Pool(names, Manner("m", "/up"), lambda: 0.0).share(OwnUpstreams.alone())
    assert again.wait(60)


@pytest.mark.parametrize("known", [True, False])
def test_a_name_is_looked_up_again_after_a_moment_without_threads(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    hosts = ["127.0.0.1"]
    names = Names("m", [Address("model.example", 1, "")], lambda *_: hosts)
    if known:
        names.refresh(FAR_NS + time.monotonic_ns())
    endpoints = names.endpoints
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        names.refresh(FAR_NS + time.monotonic_ns())
        assert names.endpoints == endpoints, "a name keeps what was found"
        if not known:
            with pytest.raises(Unreached, match=r"no thread to look up the name model\.example"):
                names.found(FAR_NS + time.monotonic_ns())
    hosts.append("127.0.0.2")
    names.refresh(FAR_NS + time.monotonic_ns())
    assert len(names.endpoints) == 2


@pytest.mark.parametrize("error", [MemoryError(), UnicodeError("label too long")])
def test_a_look_up_that_fails_in_any_way_says_so(error: Exception) -> None:
    def lookup(_host: str, _engine_slots: int) -> list[str]:
        raise error

    names = Names("m", [Address("model.example", 1, "")], lookup)
    with pytest.raises(Unreached, match=r"memoryerror|label too long"):
        names.found(FAR_NS + time.monotonic_ns())


def no_thread(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("always", [False, True])
def test_where_nobody_is_there_all_are_tried_once(gone: Callable[[], int], always: bool) -> None:
    pool = pool_of(gone(), gone(), always=always)
    for _ in range(2):
        error = failure(pool)
        assert error.status is Status.SERVER_DOWN
        assert str(error) == "the model server cannot be reached: connection refused"
    assert [one.batches for one in counts(pool)] == [2, 2]


@pytest.mark.parametrize("refusal", [BUSY, MANY])
def test_a_refusal_says_that_nothing_was_run_and_is_asked_for_elsewhere(
    server: Make, refusal: bytes
) -> None:
    first, second = server(refusal), server()
    pool = pool_of(first.port, second.port)
    assert [post(pool).body for _ in range(4)] == [b"ok"] * 4
    assert (first.posts, second.posts) == (1, 4), "it is left alone for as long as it said"
    assert [one[1:4] for one in counts(pool)] == [(1, 0, 1), (4, 0, 0)]
    assert downs(pool) == [False, False]


def test_a_server_that_asked_to_wait_is_asked_again_after_that(server: Make) -> None:
    first, second = server(BUSY), server(BUSY)
    clock = Clock()
    pool = pool_of(first.port, second.port, clock=clock)
    assert post(pool) == Answer(503, {"retry-after": "7", "content-length": "4"}, b"busy")
    assert (first.posts, second.posts) == (1, 1)
    error = failure(pool)
    assert error.status is Status.SERVER_ANSWERED
    refusal = read_refusal(str(error))
    assert (refusal.status, refusal.retry_after) == (503, "7")
    assert (first.posts, second.posts) == (1, 1)
    first.answer = second.answer = OK
    clock.ahead_ns = 7_000_000_000
    assert post(pool).status == 200


def test_a_refusal_says_more_than_a_server_that_is_not_there(
    server: Make, gone: Callable[[], int]
) -> None:
    pool = pool_of(server(MANY).port, gone())
    assert post(pool).status == 429


def test_an_answered_batch_is_no_longer_under_way(server: Make) -> None:
    first, second = server(), server(HANGS_UP)
    pool = pool_of(first.port, second.port, always=True)
    for _ in range(4):
        post(pool)
    tags = [endpoint.tag for endpoint in pool._known]
    states = pool._records.own_states(tags, time.monotonic_ns())
    assert [state.outstanding for state in states.values()] == [0, 0]


def test_a_lone_server_gets_requests_after_any_answer(server: Make) -> None:
    one = server(BUSY)
    pool = pool_of(one.port)
    assert [post(pool).status for _ in range(3)] == [503] * 3
    one.close()
    assert failure(pool).status is Status.SERVER_DOWN
    assert failure(pool).status is Status.SERVER_DOWN


def test_a_models_error_is_an_answer(server: Make) -> None:
    first, second = server(BROKEN), server()
    pool = pool_of(first.port, second.port, always=True)
    assert post(pool).status == 500
    assert (first.posts, second.posts) == (1, 0)
    assert downs(pool) == [False, False]


def test_a_batch_that_may_have_run_is_asked_for_once_where_that_is_safe(server: Make) -> None:
    first, second = server(HANGS_UP), server()
    pool = pool_of(first.port, second.port)
    error = failure(pool)
    assert error.status is Status.SERVER_BROKEN
    assert str(error) == "the model server closed the connection without an answer"
    assert (first.posts, second.posts) == (1, 0)


def test_it_is_asked_for_elsewhere_where_that_is_always_right(server: Make) -> None:
    first, second = server(HANGS_UP), server()
    pool = pool_of(first.port, second.port, always=True)
    assert post(pool).body == b"ok"
    assert (first.posts, second.posts) == (1, 1)
    first.answer = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nno" + HANGS_UP
    assert [post(pool).body for _ in range(2)] == [b"ok"] * 2


def test_a_server_that_is_killed_with_a_kept_connection_costs_no_batch(server: Make) -> None:
    first, second = server(), server()
    pool = pool_of(first.port, second.port)
    assert post(pool).body == b"ok"
    assert first.posts == 1
    first.close()
    assert [post(pool).body for _ in range(4)] == [b"ok"] * 4


def test_three_failures_in_a_row_are_enough(server: Make) -> None:
    first, second = server(GATEWAY), server(GATEWAY)
    pool = pool_of(first.port, second.port)
    second.answer = OK
    statuses = [post(pool).status for _ in range(8)]
    assert statuses.count(502) == 3
    assert downs(pool) == [True, False]


def test_the_impatience_of_a_client_is_no_failure_of_the_server(server: Make) -> None:
    first, second = server(FALLS_SILENT), server(FALLS_SILENT)
    pool = pool_of(first.port, second.port)
    for _ in range(8):
        assert failure(pool, 1_000_000).status is Status.EXPIRED
    assert downs(pool) == [False, False]


def test_a_server_that_is_back_is_asked_again_after_a_probe(server: Make) -> None:
    first, second = server(GATEWAY), server()
    clock = Clock()
    pool = pool_of(first.port, second.port, clock=clock)
    first.probed = BUSY
    pool.turn()
    assert downs(pool) == [True, False]
    first.probed = first.answer = OK
    clock.ahead_ns = 3_000_000_000
    pool.turn()
    assert downs(pool) == [False, False]
    assert set(first.asked) == {b"GET /up HTTP/1.1\r\n"}


def test_a_batch_leaves_a_server_that_has_stopped_where_it_may(server: Make) -> None:
    first, second = server(FALLS_SILENT), server()
    pool = pool_of(first.port, second.port, always=True)
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(post(pool)))
    thread.start()
    while not first.posts:
        thread.join(0.01)
    tag = pool._known[0].tag
    pool._records.failed(tag, time.monotonic_ns(), 3, of_batch=False)
    thread.join()
    assert [answer.body for answer in answers] == [b"ok"]


def test_a_fault_of_tls_is_described(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for name in ("upstream_ca", "upstream_certificate"):
        given: dict[str, Any] = {name: str(wrong)}
        options = Options(max_batch_size=1, threads=1, **given)
        with pytest.raises(StartupError, match=r"wrong\.pem: cannot be used for TLS to model"):
            tls_context(options)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def over_tls(
    server: Make, authority: trustme.CA, folder: Path, host: str = "127.0.0.1", **more: str
) -> tuple[Server, Pool]:
    """A server with a certificate for 127.0.0.1 that wants one too, and who asks it by a name."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED
    made = server(OK, context)
    ca, shown = folder / "ca.pem", authority.issue_cert("client")
    authority.cert_pem.write_to_path(str(ca))
    shown.private_key_and_cert_chain_pem.write_to_path(str(folder / "client.pem"))
    own = str(folder / "client.pem")
    given: dict[str, Any] = {
        "upstream_ca": str(ca),
        "upstream_certificate": own,
        "upstream_key": own,
    } | more
    tls = tls_context(Options(max_batch_size=1, threads=1, **given))
    names = Names("m", [Address(host, made.port, "", "https")], lambda *_: ["127.0.0.1"])
    return made, Attended(names, Manner("m", "/up", tls=tls))


def test_large_batches_and_answers_pass_over_tls(
    server: Make, authority: trustme.CA, tmp_path: Path
) -> None:
    made, pool = over_tls(server, authority, tmp_path)
    large = b"x" * 3_000_000
    made.answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(large), large)
    for _ in range(3):
        answer = pool.post(b"/p", b"", large, time.monotonic_ns() + FAR_NS)
        assert answer.body == large
    assert len(made._open) == 1, "one connection"


def test_a_server_with_another_identity_is_sent_nothing(
    server: Make, authority: trustme.CA, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    for more in ({"host": "another.name"}, {"upstream_ca": str(other)}):
        made, pool = over_tls(server, authority, tmp_path, **more)
        error = failure(pool)
        assert error.status is Status.SERVER_DOWN
        assert "certificate verify failed" in str(error)
        assert made.posts == 0
