"""Whose a request is, as it stands in the slots: by address, behind a proxy, by key."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import numpy as np
import pytest
from serve.client import WAYS, Connection, instances, predict_target, request
from serve.grpc_stub import Stub, grpc_port
from serve.secure import KEY, OTHER_KEY, bearer, write_private
from serve.server import Server, Start

from ringbatch.frontend import Client
from ringbatch.shm.account import NOBODY, PriorityClass, class_of, identity_of, with_class
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.engines import only
from ringbatch.shm.segment import Segment

PROXY, CLIENT, OTHER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
MODELS: Final = {"matmul": {"path": "matmul.py"}, "echo": {"path": "slow.py"}}
FASTAPI: Final = str(Path(__file__).with_name("applications") / "api:app")
ROW: Final = [1.0] * 16
BODY: Final = instances(ROW)
TENSOR: Final = {"name": "x", "shape": [1, 16], "datatype": "FP32"}
V2: Final = json.dumps({"inputs": [{**TENSOR, "data": ROW}]}).encode()
FP32: Final = {"fp32_contents": ROW}


class Slots:
    """The slots of a server, for who wants to know whose the last request was."""

    def __init__(self, server: Server) -> None:
        self._segment = Segment.attach(only(server.pid))
        self._slots = EngineSlots(self._segment, 0, lambda _lane: None)

    def last(self) -> int:
        """The account word of the request that was accepted last, as the collector reads it."""
        references = [ref for ref, _ in self._slots.published()]
        found = [request for ref in references if (request := self._slots.read(ref))]
        return max(found, key=lambda request: request.accepted_ns).account

    def written(self) -> set[int]:
        """The account words of all slots, as they stand there."""
        layout = self._segment.layout
        return {
            self._segment.words[layout.slot(number) + SlotWords.ACCOUNT]
            for number in range(layout.lanes * layout.slots)
        }

    def close(self) -> None:
        self._segment.detach()


def slots_of(server: Server) -> Iterator[Slots]:
    found = Slots(server)
    yield found
    found.close()


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module(
        MODELS, frontends=2, http2=True, grpc_port=0, app=FASTAPI, trusted_proxies=[PROXY]
    )


@pytest.fixture
def slots(server: Server) -> Iterator[Slots]:
    yield from slots_of(server)


def asked(server: Server, data: bytes, source: str = PROXY) -> None:
    with Connection(server.port, source) as connection:
        assert connection.ask(data).status == 200


def ways(**headers: str) -> dict[str, bytes]:
    """One request for each way through a frontend of HTTP."""
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    own = "".join(f"\r\n{name}: {value}" for name, value in lines.items()).encode()
    found = {
        way: make("matmul", BODY).replace(b"\r\nHost: test", b"\r\nHost: test" + own)
        for way, make in WAYS.items()
    }
    found["v2"] = request("/v2/models/matmul/infer", V2, headers=lines)
    kind = {"Content-Type": "application/json"}
    found["app"] = request("/sums", json.dumps([ROW]).encode(), headers=lines | kind)
    found["thread"] = request("/threaded", json.dumps(ROW).encode(), headers=lines | kind)
    return found


def over_http2(server: Server, source: str, **headers: str) -> None:
    lines = {name.replace("_", "-"): value for name, value in headers.items()}
    transport = httpx.HTTPTransport(http1=False, http2=True, local_address=source)
    with httpx.Client(transport=transport) as client:
        address = f"http://127.0.0.1:{server.port}{predict_target('matmul')}"
        assert client.post(address, content=BODY, headers=lines).status_code == 200


def over_grpc(server: Server, *metadata: tuple[str, str]) -> None:
    with Stub(grpc_port(server)) as stub:
        end = stub.infer("matmul", {**TENSOR, "contents": FP32}, metadata=metadata)
        assert end.code == "OK", end.text


def test_each_address_is_an_account_whatever_the_way(server: Server, slots: Slots) -> None:
    found: dict[str, set[int]] = {}
    for source in (PROXY, CLIENT, OTHER):
        for data in ways().values():
            asked(server, data, source)
            found.setdefault(source, set()).add(slots.last())
        over_http2(server, source)
        found[source].add(slots.last())
    over_grpc(server)
    found[PROXY].add(slots.last())
    assert all(len(words) == 1 for words in found.values()), found
    assert len(set.union(*found.values())) == 3
    assert NOBODY not in set.union(*found.values())


def test_a_trusted_proxy_says_whose_a_request_is_and_nobody_else_does(
    server: Server, slots: Slots
) -> None:
    asked(server, ways()["fast"], CLIENT)
    client = slots.last()
    spoilt = f"9.9.9.9, {CLIENT}"
    for way, data in ways(X_Forwarded_For=spoilt).items():
        asked(server, data)
        assert slots.last() == client, way
    over_http2(server, PROXY, X_Forwarded_For=spoilt)
    assert slots.last() == client
    over_grpc(server, ("x-forwarded-for", spoilt))
    assert slots.last() == client
    for way, data in ways(X_Forwarded_For=OTHER).items():
        asked(server, data, CLIENT)
        assert slots.last() == client, way


def test_requests_of_one_connection_may_be_of_several_clients(server: Server, slots: Slots) -> None:
    found = []
    with Connection(server.port) as connection:
        for address in (CLIENT, OTHER, CLIENT, CLIENT):
            assert connection.ask(ways(X_Forwarded_For=address)["fast"]).status == 200
            found.append(slots.last())
    assert found[0] == found[2] == found[3] != found[1]


def test_a_program_with_a_client_is_an_account_of_its_own(server: Server, slots: Slots) -> None:
    before = slots.written()
    with Client(server.pid) as one, Client(server.pid) as other:
        found = []
        for client in (one, other, one):
            client.infer("matmul", np.array([ROW], np.float32))
            found.append(identity_of(slots.last()))
    assert found[0] == found[2] != found[1]
    assert NOBODY not in found
    assert not set(found) & before


def test_a_request_may_name_its_class_whatever_the_way(server: Server, slots: Slots) -> None:
    asked(server, ways()["fast"])
    plain = slots.last()
    bulk = with_class(plain, PriorityClass.BULK)
    for way, data in ways(X_Priority="bulk").items():
        asked(server, data)
        assert slots.last() == bulk, way
    over_http2(server, PROXY, X_Priority="bulk")
    assert slots.last() == bulk
    over_grpc(server, ("x-priority", "bulk"))
    assert slots.last() == bulk


def test_another_class_is_refused_in_words(server: Server, slots: Slots) -> None:
    wrong = "X-Priority is 'urgent', not interactive, normal or bulk"
    for way, data in ways(X_Priority="urgent").items():
        with Connection(server.port) as connection:
            answer = connection.ask(data)
        if way in ("app", "thread"):
            assert answer.status == 200
            assert class_of(slots.last()) is PriorityClass.NORMAL
        else:
            assert (answer.status, answer.error) == (400, wrong), way
    with Stub(grpc_port(server)) as stub:
        request_of = {**TENSOR, "contents": FP32}
        end = stub.infer("matmul", request_of, metadata=[("x-priority", "urgent")])
        assert (end.code, end.text) == ("INVALID_ARGUMENT", wrong)
        assert stub.infer("matmul", request_of).code == "OK"


@pytest.fixture(scope="module")
def guarded(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    keys = write_private(tmp_path_factory.mktemp("keys") / "keys", f"{KEY}\n{OTHER_KEY}\n")
    return start_for_module(MODELS, grpc_port=0, api_keys_file=str(keys))


def test_each_key_is_an_account_wherever_it_comes_from(guarded: Server) -> None:
    slots = Slots(guarded)
    words: list[set[int]] = []
    for key in (KEY, OTHER_KEY):
        own: set[int] = set()
        for source in (PROXY, CLIENT):
            for headers in (bearer(key), {"X-API-Key": key}):
                for way, data in ways(**headers).items():
                    if way not in ("app", "thread"):
                        asked(guarded, data, source)
                        own.add(slots.last())
        over_grpc(guarded, ("x-api-key", key))
        own.add(slots.last())
        words.append(own)
    assert all(len(own) == 1 for own in words), words
    assert words[0] != words[1]
    slots.close()


def test_without_fair_shares_all_are_nobody(start: Start) -> None:
    server = start(MODELS, fair_shares=False, grpc_port=0)
    slots = Slots(server)
    for source in (PROXY, CLIENT):
        for way, data in ways().items():
            if way not in ("app", "thread"):
                asked(server, data, source)
    over_grpc(server)
    with Client(server.pid) as client:
        client.infer("matmul", np.array([ROW], np.float32))
        assert slots.last() == NOBODY
    assert slots.written() == {NOBODY}
    slots.close()
