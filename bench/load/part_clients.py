"""Clients that ask for answers in parts, one answer after the other, for some time."""

import selectors
import socket
import threading
import time
from collections.abc import Sequence

import numpy as np
from host.server import HOST

from load.answers import WrongAnswer
from load.part_answers import MODEL, Answers, Exchange
from ringbatch.frontend import Client


def drive(port: int, exchanges: Sequence[Exchange], seconds: float) -> None:
    """Keep the clients of some connections asking, each until its answer ends after that time.

    Raises:
        WrongAnswer: an answer was not right.
    """
    until_s = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for exchange in exchanges:
            connection = socket.create_connection((HOST, port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asking = set(exchange.clients)
            selector.register(connection, selectors.EVENT_READ, (exchange, asking))
            now_s = time.monotonic()
            requests = [exchange.ask(client, now_s) for client in exchange.clients]
            connection.sendall(_replies(exchange) + b"".join(requests))
        while selector.get_map():
            for key, _ in selector.select():
                connection = key.fileobj  # type: ignore[assignment]
                exchange, asking = key.data
                data = connection.recv(1 << 18)
                now_s = time.monotonic()
                if not data:
                    raise WrongAnswer("a connection has ended")
                ended = exchange.take(data, now_s)
                if now_s >= until_s:
                    asking.difference_update(ended)
                    ended = []
                if out := _replies(exchange) + b"".join(exchange.ask(one, now_s) for one in ended):
                    connection.sendall(out)
                if not asking:
                    selector.unregister(connection)
                    connection.close()


def drive_client(engine: int, clients: Sequence[Answers], seconds: float) -> None:
    """Do as `drive` by one Client, with a thread of this process for each of its clients.

    Args:
        engine: the process id of its supervisor.
        clients: the answers of each.
        seconds: how long to ask.

    Raises:
        WrongAnswer: an answer was not right.
    """
    failures: list[WrongAnswer] = []
    until_s = time.monotonic() + seconds

    def ask(client: Client, answers: Answers) -> None:
        row = np.array([answers.value], np.float32)
        try:
            while not failures and time.monotonic() < until_s:
                answers.sent(time.monotonic())
                for part in client.stream(MODEL, row):
                    answers.part(part[0].tolist(), time.monotonic())
                answers.end()
        except WrongAnswer as error:
            failures.append(error)

    with Client(engine) as client:
        threads = [threading.Thread(target=ask, args=(client, one)) for one in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def _replies(exchange: Exchange) -> bytes:
    reply, exchange.reply = exchange.reply, b""
    return reply
