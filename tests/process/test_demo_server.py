"""The demo's two ends in real life: a process that is started and stopped, and TCP connections."""

import asyncio
import itertools
import os
import sys
import textwrap
import threading
from collections.abc import Awaitable, Callable

import pytest

from ringbatch.engine.demo import client as demo_client
from ringbatch.engine.demo import server as demo_server
from ringbatch.engine.demo.server import DemoFailed, left_behind, served
from ringbatch.shm.shm_objects import DIRECTORY

READY = "print('ringbatch: serving digits on http://127.0.0.1:4711', flush=True)"

Answerer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


def program(source: str) -> tuple[str, ...]:
    return (sys.executable, "-c", "import os, signal, sys\n" + textwrap.dedent(source))


def test_the_port_is_read_from_the_ready_line_and_sigterm_ends_it() -> None:
    source = f"""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        print("something else first")
        {READY}
        signal.sigwait([signal.SIGTERM])
    """
    with served(program(source)) as server:
        assert server.wait_ready(30) == 4711
        assert os.getpgid(server.pid) == server.pid
        assert server.stop() == []
    assert server.last_words() == ["the server wrote:", "  something else first"]


def test_a_server_that_ends_before_it_is_ready_fails_with_its_own_words() -> None:
    source = "sys.stderr.write('the port is in use'); sys.exit(3)"
    with (
        served(program(source)) as server,
        pytest.raises(DemoFailed, match=r"(?s)status 3 before it was ready.*the port is in use"),
    ):
        server.wait_ready(30)


def test_a_server_that_never_gets_ready_is_given_up_and_stopped() -> None:
    with (
        served(program("signal.pause()")) as server,
        pytest.raises(DemoFailed, match="not ready within 0 s"),
    ):
        server.wait_ready(0)
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


def test_an_exit_status_other_than_0_is_a_problem() -> None:
    source = f"""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        {READY}
        signal.sigwait([signal.SIGTERM])
        sys.exit(4)
    """
    with served(program(source)) as server:
        server.wait_ready(30)
        assert server.stop() == ["the server stopped with status 4, not 0"]


def test_a_server_that_ignores_sigterm_is_killed_with_its_children(
    monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., object]
) -> None:
    source = f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        read, write = os.pipe()
        if os.fork() == 0:
            print("child", os.getpid(), flush=True)
            os.write(write, b"x")
            signal.pause()
        os.read(read, 1)
        {READY}
        signal.pause()
    """
    monkeypatch.setattr(demo_server, "STOP_MARGIN_S", -29.9)  # the drain limit is 30 s
    with served(program(source)) as server:
        server.wait_ready(30)
        with pytest.raises(DemoFailed, match=r"did not stop within 0\.1 s"):
            server.stop()
        child = int(server.last_words()[-1].split()[-1])
    wait_until(lambda: has_ended(child), "the end of the child")


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or a zombie that its parent has yet to reap."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_output_beyond_a_pipe_holds_nobody_up() -> None:
    source = f"""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        for number in range(20000):
            print("line", number)
        {READY}
        signal.sigwait([signal.SIGTERM])
    """
    with served(program(source)) as server:
        assert server.wait_ready(30) == 4711
        assert server.stop() == []
    assert len(server.last_words()) == demo_server.KEPT_LINES + 1
    assert server.last_words()[-1] == "  line 19999"


def test_only_the_servers_own_leftovers_in_shm_are_named() -> None:
    own, another = f"ringbatch.demo.{os.getpid()}.0", f"ringbatch.demo.{os.getpid()}0.0"
    left = [own, f"{own}.l0", f"sem.{own}.c"]
    try:
        for name in [*left, another]:
            (DIRECTORY / name).touch()
        assert left_behind(os.getpid()) == left
    finally:
        for name in [*left, another]:
            (DIRECTORY / name).unlink(missing_ok=True)
    assert left_behind(os.getpid()) == []


def send(
    answer: Answerer, requests: int, clients: int
) -> tuple[list[demo_client.Answer | None], list[str], int]:
    """Run `send_all` against a server of this process: its answers, reasons and connections."""
    connections = itertools.count()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        next(connections)
        try:
            while not writer.is_closing() and (line := await reader.readline()):
                await answer(line.strip(), writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def both() -> tuple[list[demo_client.Answer | None], list[str]]:
        server = await asyncio.start_server(serve, demo_client.HOST, 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            messages = [b"%d\n" % number for number in range(requests)]
            ticks = itertools.count()
            return await demo_client.send_all(port, messages, clients, ticks.__next__, lambda: None)

    answers, reasons = asyncio.run(both())
    return answers, reasons, next(connections)


def response(content: bytes, *headers: bytes) -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(content), *headers, b"", content]
    return b"\r\n".join(lines)


def test_every_request_gets_its_own_answer_over_connections_that_stay() -> None:
    async def echo(line: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(response(line))

    answers, reasons, connections = send(echo, requests=100, clients=7)
    assert [answer.body for answer in answers if answer] == [b"%d" % n for n in range(100)]
    assert all(answer.latency_ns > 0 for answer in answers if answer)
    assert reasons == []
    assert connections == 7


def test_no_more_connections_than_requests() -> None:
    async def echo(line: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(response(line))

    assert send(echo, requests=3, clients=32)[2] == 3


def test_a_connection_that_is_closed_politely_is_opened_again() -> None:
    async def last(line: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(response(line, b"Connection: close"))
        writer.close()

    answers, reasons, connections = send(last, requests=10, clients=2)
    assert [answer.body for answer in answers if answer] == [b"%d" % n for n in range(10)]
    assert reasons == []
    assert connections == 10


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"", "closed before the answer was whole", id="silent"),
        pytest.param(response(b"12345")[:-1], "closed before the answer was whole", id="cut"),
        pytest.param(b"SSH-2.0\r\n\r\n", "not a response of HTTP/1.1", id="not-http"),
        pytest.param(b"x" * 200_000, "head has no end", id="endless-head"),
    ],
)
def test_a_client_without_an_answer_stops_and_the_others_go_on(content: bytes, words: str) -> None:
    async def fail_once(line: bytes, writer: asyncio.StreamWriter) -> None:
        if line == b"1":
            writer.write(content)
            writer.close()
        else:
            writer.write(response(line))

    answers, reasons, _ = send(fail_once, requests=20, clients=2)
    assert [place for place, answer in enumerate(answers) if answer is None] == [1]
    assert len(reasons) == 1
    assert words in reasons[0]


def test_silence_is_given_up_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_client, "ANSWER_LIMIT_S", 0.2)

    async def silent(_line: bytes, _writer: asyncio.StreamWriter) -> None:
        return

    answers, reasons, _ = send(silent, requests=5, clients=2)
    assert answers == [None] * 5
    assert reasons == ["no answer within 0.2 s"] * 2


def test_the_reader_of_the_output_ends_with_the_server() -> None:
    before = threading.enumerate()
    with served(program(READY)) as server:
        server.wait_ready(30)
        server.stop()
    # Threads of earlier tests may end meanwhile.
    assert not {*threading.enumerate()} - {*before}
