"""Clients that ask without a pause, each over a connection of its own, and know their answers."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from serve.client import Closed, Connection, fast, instances

CLIENTS: Final = 16
IDLE_S: Final = 0.05
"""Half of what a stopping server waits for a request on its way over an idle connection."""
BROKEN: Final = "the connection ended"


class Listening(Protocol):
    """Server at a port of 127.0.0.1."""

    port: int


class Load:
    """Requests to the model "echo" until told to stop.

    Each request has a value of its own. One that was sent on a connection that had been idle for
    a while, and that meets its end with no byte of an answer there, may have met a server that
    closed an idle connection; it is sent again, as every HTTP client does. Everything else that
    is not the right answer is a failure.

    Args:
        server: or whoever else listens, by its port.
        clients: number of clients.
        pause_s: of each between an answer and its next request.
        ask: makes a request of a model's name and a body.

    Attributes:
        answered: number of right answers.
        retried: number of requests that met the end of an idle connection.
        failures: in words.
        refused: number of clients that were refused a connection, and ended.
        unaccepted: number of new connections that were reset before a server accepted them.
    """

    def __init__(
        self,
        server: Listening,
        clients: int = CLIENTS,
        pause_s: float = 0.0,
        ask: Callable[[str, bytes], bytes] = fast,
    ) -> None:
        self._server = server
        self._pause_s = pause_s
        self._ask = ask
        self._going = True
        self._lock = threading.Lock()
        self.answered = 0
        self.retried = 0
        self.refused = 0
        self.unaccepted = 0
        self.failures: list[str] = []
        self.lost: list[int] = []
        """Ports of the connections whose ends were met."""
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(clients)]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait until every client has ended, because it was refused or because of `stop`."""
        for thread in self._threads:
            thread.join()

    def stop(self) -> None:
        """Let every client finish its request, and wait for their ends."""
        self._going = False
        self.join()

    def _run(self, client: int) -> None:
        number, connection = 0, None
        while self._going:
            if connection is None:
                # Before it is open: a thread of a busy process may learn late that it is.
                idle_since = time.monotonic()
                try:
                    connection = Connection(self._server.port)
                except ConnectionRefusedError:
                    self._note(refused=1)
                    return
                except ConnectionResetError:
                    self._note(unaccepted=1)
                    continue
                except OSError as error:
                    self._note(failure=f"no connection: {error}")
                    return
                fresh = True
            sent_at = 0.0
            try:
                connection.send(self._ask("echo", instances([client, number])))
                sent_at = time.monotonic()
                keep = self._receive(connection, [client, number])
                fresh = False
                # As late as it was answered, or earlier.
                idle_since = sent_at
                number += 1
                time.sleep(self._pause_s)
            except (Closed, OSError) as error:
                received = error.received if isinstance(error, Closed) else b""
                idle_s = (sent_at or time.monotonic()) - idle_since
                self._note(lost=connection.port)
                # No server accepts a connection that was half open when the server stopped.
                unaccepted = fresh and isinstance(error, ConnectionResetError)
                self._note(unaccepted=int(unaccepted))
                if (idle_s < IDLE_S or received) and not unaccepted:
                    self._note(failure=f"{BROKEN}: {error!r}, idle before for {idle_s:.3f} s")
                else:
                    self._note(retried=1)
                keep = False
            if not keep:
                connection.close()
                connection = None
        if connection is not None:
            connection.close()

    def _receive(self, connection: Connection, value: list[int]) -> bool:
        """Receive an answer and count it; False if the connection ends."""
        answer = connection.receive()
        if answer.status == 200 and answer.json["predictions"] == [value]:
            self._note(answered=1)
        else:
            self._note(failure=f"{value}: {answer.status} {answer.body!r}")
        return answer.headers.get("connection") != "close"

    def _note(self, failure: str | None = None, lost: int | None = None, **counts: Any) -> None:
        with self._lock:
            if failure is not None:
                self.failures.append(failure)
            if lost is not None:
                self.lost.append(lost)
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)
