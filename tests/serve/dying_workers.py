"""A load whose workers are killed one after the other, and whose every answer is compared."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

from serve.client import Response
from serve.server import Server

BETWEEN_S = 2.0


def compared(
    server: Server,
    ask: Callable[[Any], Response],
    rows: Sequence[Any],
    right: Sequence[Any],
    *,
    clients: int,
    seconds: float,
) -> tuple[int, int, list[str]]:
    """Ask for so long, and kill a ready worker every 2 s if another one is ready.

    Returns:
        How many answers came, how many workers were killed, and the answers that were wrong.
    """
    over = Event()
    wrong: list[str] = []

    def client(first: int) -> int:
        count = 0
        while not over.is_set():
            number = (first + count * clients) % len(rows)
            answer = ask(rows[number])
            if answer.status != 200 or answer.json["predictions"] != [right[number]]:
                wrong.append(f"{answer.status} {answer.body[:200]!r}, not {right[number]}")
            count += 1
        return count

    kills = 0
    with ThreadPoolExecutor(clients) as pool:
        asked = [pool.submit(client, first) for first in range(clients)]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            status = server.status()
            ready = [
                status.pids[number]
                for number, state in status.states.items()
                if state.startswith("ready, ")
            ]
            if len(ready) > 1:
                os.kill(ready[kills % len(ready)], signal.SIGKILL)
                kills += 1
            over.wait(BETWEEN_S)
        over.set()
        return sum(one.result() for one in asked), kills, wrong
