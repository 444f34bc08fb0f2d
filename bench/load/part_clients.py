"""Clients that ask for answers in parts, one answer after the other, for some time."""

import asyncio
import selectors
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

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
            data = connection, exchange, asking
            selector.register(connection, selectors.EVENT_READ, data)
            now_s = time.monotonic()
            requests = [exchange.ask(client, now_s) for client in exchange.clients]
            connection.sendall(_replies(exchange) + b"".join(requests))
        while selector.get_map():
            for key, _ in selector.select():
                connection, exchange, asking = key.data
                received = connection.recv(1 << 18)
                now_s = time.monotonic()
                if not received:
                    raise WrongAnswer("a connection has ended")
                ended = exchange.take(received, now_s)
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
        RequestError: a request failed.
    """
    until_s = time.monotonic() + seconds

    def ask(answers: Answers) -> None:
        row = np.array([answers.value], np.float32)
        while time.monotonic() < until_s:
            answers.sent(time.monotonic())
            for part in client.stream(MODEL, row):
                answers.part(part[0].tolist(), time.monotonic())
            answers.end()

    with Client(engine) as client, ThreadPoolExecutor(len(clients)) as threads:
        # Asked for the results, it raises the first failure.
        list(threads.map(ask, clients))


def drive_coroutines(engine: int, clients: Sequence[Answers], seconds: float) -> None:
    """Do as `drive_client` with a coroutine for each of its clients, on one event loop."""
    until_s = time.monotonic() + seconds

    async def ask(client: Client, answers: Answers) -> None:
        row = np.array([answers.value], np.float32)
        while time.monotonic() < until_s:
            answers.sent(time.monotonic())
            async for part in client.stream_async(MODEL, row):
                answers.part(part[0].tolist(), time.monotonic())
            answers.end()

    async def ask_all(client: Client) -> None:
        await asyncio.gather(*(ask(client, answers) for answers in clients))

    with Client(engine) as client:
        asyncio.run(ask_all(client))


def _replies(exchange: Exchange) -> bytes:
    reply, exchange.reply = exchange.reply, b""
    return reply
