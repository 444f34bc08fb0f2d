"""Ways of asking one model of ringbatch, and what tells two clients of it apart.

A way is a protocol and a mark of its clients. The protocols are those of `ringbatch.bench.load`.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from host.haproxy import haproxy
from host.network_namespaces import path_of
from host.server import HOST, Server, free_port
from peers.servers import MODELS, Ringbatch, TomlValue

from ringbatch.bench.load.answers import post
from ringbatch.bench.load.fleet import Fleet
from ringbatch.bench.load.grpc_call import call_head, prefixed
from ringbatch.bench.load.infer_message import infer_request
from ringbatch.bench.load.target import Target, Wire

MODEL = "sleep"
CAP = 32
OTHER = "127.0.0.2"
"""Address of the second client, if addresses tell them apart."""
PROXY = "127.0.0.3"
"""Address of the proxy, as ringbatch sees it."""
KEYS = ("a-key-of-the-first-client-00", "a-key-of-the-second-client-0")
V1_BODY = json.dumps({"instances": [3.0]}).encode()
V2_BODY = json.dumps(
    {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [3.0]}]}
).encode()
JSON = ("Content-Type", "application/json")


class Protocol(StrEnum):
    """Protocols of requests."""

    V1 = "V1"
    V2 = "V2"
    GRPC = "gRPC"
    CLIENT = "Client"


class Mark(StrEnum):
    """Marks that tell clients apart."""

    ADDRESS = "address"
    KEY = "key"
    LANE = "lane"
    FORWARDED = "X-Forwarded-For, behind HAProxy"


@dataclass(frozen=True)
class Served:
    """A running ringbatch server.

    Attributes:
        pid: of its supervisor.
        port, grpc_port: of the server.
        proxy_port: of HAProxy before it; 0 without.
    """

    pid: int
    port: int
    grpc_port: int
    proxy_port: int


@dataclass(frozen=True)
class Way:
    """A way of asking."""

    protocol: Protocol
    mark: Mark

    def __str__(self) -> str:
        return f"{self.protocol}, {self.mark}"

    @property
    def obstacle(self) -> str:
        """The reason why this way cannot be taken here; empty if it can."""
        if self.mark is Mark.FORWARDED and path_of("haproxy") is None:
            return "HAProxy is not installed: apt-get install haproxy"
        return ""

    def fleet(self, served: Served, client: int, priority: str = "") -> Fleet:
        """Return a process that sends requests.

        Args:
            served: to which.
            client: 0 or 1, which are two accounts.
            priority: class of the requests; empty for none.
        """
        headers = [("X-Priority", priority)] if priority else []
        if self.mark is Mark.KEY:
            headers.append(("X-API-Key", KEYS[client]))
        source = OTHER if client and self.mark in (Mark.ADDRESS, Mark.FORWARDED) else HOST
        port = served.proxy_port if self.mark is Mark.FORWARDED else served.port
        if self.protocol is Protocol.CLIENT:
            return Fleet(1, Target("", 0, Wire.CLIENT, served.pid, MODEL), [V2_BODY])
        if self.protocol is Protocol.GRPC:
            call = prefixed(infer_request(MODEL, V2_BODY))
            target = Target(HOST, served.grpc_port, Wire.GRPC, source=source)
            return Fleet(1, target, [call], call_head=call_head(HOST, headers))
        v1 = self.protocol is Protocol.V1
        path = f"/v1/models/{MODEL}:predict" if v1 else f"/v2/models/{MODEL}/infer"
        message = post(HOST, path, V1_BODY if v1 else V2_BODY, [JSON, *headers])
        return Fleet(1, Target(HOST, port, source=source), [message])


WAYS: Sequence[Way] = (
    *(
        Way(protocol, mark)
        for protocol in (Protocol.V1, Protocol.V2, Protocol.GRPC)
        for mark in (Mark.ADDRESS, Mark.KEY)
    ),
    Way(Protocol.CLIENT, Mark.LANE),
    Way(Protocol.V1, Mark.FORWARDED),
)


@contextmanager
def served(folder: Path, *, fair: bool, keys: bool, proxy: bool) -> Iterator[Served]:
    """Run a server with a model of 10 ms for up to `CAP` requests.

    Args:
        folder: for its files.
        fair: whether it has fair shares.
        keys: whether requests need one of `KEYS`.
        proxy: whether HAProxy runs before it.
    """
    folder.mkdir()
    grpc_port = free_port()
    more: dict[str, TomlValue] = {"fair_shares": fair, "grpc_port": grpc_port}
    more["trusted_proxies"] = [PROXY]
    if keys:
        file = folder / "keys"
        file.write_text("\n".join(KEYS) + "\n")
        file.chmod(0o600)
        more["api_keys_file"] = str(file)
    ours = Ringbatch(MODEL, MODELS / "sleep_10ms.py", 1, {"max_batch_size": CAP}, more)
    with ExitStack() as stack:
        server = stack.enter_context(Server(ours.command(folder)))
        proxy_port = stack.enter_context(haproxy(folder, server.port, PROXY)) if proxy else 0
        yield Served(server.pid, server.port, grpc_port, proxy_port)
