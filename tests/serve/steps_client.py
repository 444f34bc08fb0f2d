"""Clients of the tests' model in steps: rows asked for in parts or as one, and their counts."""

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import httpx
from serve.client import Connection, fast
from serve.figures import figures
from serve.server import Server

EVENTS: Final = {"Accept": "text/event-stream"}
V1: Final = "/v1/models/stepping:predict"
V2: Final = "/v2/models/stepping/infer"
GENERATE: Final = "/v2/models/stepping/generate_stream"
TIMEOUT_S: Final = 60
PLACES: Final = 3
MODELS: Final = {"stepping": {"path": "stepping.py", "max_batch_size": PLACES}}


def v1_body(*texts: str) -> dict[str, Any]:
    return {"instances": [{"text": [text]} for text in texts]}


def v2_body(text: str) -> dict[str, Any]:
    tensor = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
    return {"inputs": [tensor]}


class Stream:
    """The events of an answer, one by one.

    Args:
        server: the server that answers.
        text: of the only row.
        path: path of the requests.
        body: the whole request, if it is not V1's of the text.
    """

    def __init__(
        self, server: Server, text: str, path: str = V1, body: Mapping[str, Any] | None = None
    ) -> None:
        # A client that verifies, even one of plain HTTP, reads the file of all authorities, 15 ms.
        self._client = httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=False)
        address = f"http://127.0.0.1:{server.port}{path}"
        asks = self._client.build_request(
            "POST", address, json=body or v1_body(text), headers=EVENTS
        )
        self.answer = self._client.send(asks, stream=True)
        self.port = self.answer.extensions["network_stream"].get_extra_info("client_addr")[1]
        self._lines = self.answer.iter_lines()

    def next(self) -> Any:
        """Return the next event, decoded; None at the end."""
        for line in self._lines:
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))
        return None

    def part(self) -> dict[str, Any]:
        """Return the only prediction of the next event."""
        found: dict[str, Any] = self.next()["predictions"][0]
        return found

    def numbers(self) -> list[int]:
        """Read all parts that are left; return their numbers."""
        found = []
        while (event := self.next()) is not None:
            found += event["predictions"][0]["number"]
        return found

    def last(self) -> Any:
        """Read all that is left; return the last event."""
        last = None
        while (event := self.next()) is not None:
            last = event
        return last

    def refused(self, status: int) -> str:
        """Expect an answer without events; return its error."""
        assert self.answer.status_code == status
        return str(json.loads(self.answer.read())["error"])

    def close(self) -> None:
        """Close the connection."""
        self.answer.close()
        self._client.close()


@contextmanager
def begun(server: Server, *texts: str) -> Iterator[list[Stream]]:
    """Rows of which a part has come, so that they are live."""
    with ExitStack() as stack:
        streams = []
        for text in texts:
            streams.append(Stream(server, text))
            stack.callback(streams[-1].close)
            assert streams[-1].part()["number"] == [0]
        yield streams


def asked(server: Server, *texts: str) -> list[dict[str, Any]]:
    """Return the predictions of one answer."""
    with Connection(server.port) as connection:
        answer = connection.ask(fast("stepping", json.dumps(v1_body(*texts)).encode()))
    assert answer.status == 200, answer.body
    found: list[dict[str, Any]] = answer.json["predictions"]
    return found


def samples(server: Server) -> Counter[str]:
    """Return the figures of the control address, summed over labels but for the reasons of ends."""
    address = f"http://127.0.0.1:{server.control_port}/metrics"
    with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
        text = answer.read().decode()
    found: Counter[str] = Counter()
    for one in figures(text):
        name = one.labels["reason"] if one.name == "stepping_ended_total" else one.name
        found[name] += one.value  # type: ignore[assignment]
    return found


def reasons(server: Server) -> Counter[str]:
    """Return the number of ended rows by reason."""
    found = samples(server)
    return Counter({key: found[key] for key in ("done", "cancelled", "deadline", "failed")})
