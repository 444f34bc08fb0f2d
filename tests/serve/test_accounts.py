"""Accounts of requests in the slots of a server: by address, behind a proxy, by key."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
from dev_shm import takes
from serve.client import WAYS, Connection, instances, predict_target, request
from serve.grpc_stub import Stub, grpc_port
from serve.secure import KEY, OTHER_KEY, bearer, write_private
from serve.server import Server, Start
from tiers import exhaustive

from ringbatch.frontend import Client
from ringbatch.shm.account import (
    NOBODY,
    PriorityClass,
    account_word,
    class_of,
    identity_of,
    with_class,
)
from ringbatch.shm.descriptors import SlotWords
from ringbatch.shm.engine_slots import EngineSlots
from ringbatch.shm.engines import only
from ringbatch.shm.segment import Segment

pytestmark = takes(30)

PROXY, CLIENT, OTHER = "127.0.0.1", "127.0.0.2", "127.0.0.3"
MODELS: Final = {
    "matmul": {"path": "matmul.py", "max_batch_size": 2048},
    "echo": {"path": "slow.py"},
}
APPLICATION: Final = str(Path(__file__).with_name("applications") / "api:app")
ROW: Final = [1.0] * 16
BODY: Final = instances(ROW)
TENSOR: Final = {"name": "x", "shape": [1, 16], "datatype": "FP32"}
V2: Final = json.dumps({"inputs": [{**TENSOR, "data": ROW}]}).encode()


def v2_body(parameters: dict[str, Any]) -> bytes:
    """A request with parameters over V2."""
    inputs = [{**TENSOR, "data": ROW}]
    return json.dumps({"inputs": inputs, "parameters": parameters}).encode()


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
        MODELS,
        frontends=2,
        http2=True,
        grpc_port=0,
        app=APPLICATION,
        trusted_proxies=[PROXY],
        max_request_bytes=1 << 20,
    )


@pytest.fixture
def slots(server: Server) -> Iterator[Slots]:
    yield from slots_of(server)


def asked(server: Server, data: bytes, source: str = PROXY) -> None:
    with Connection(server.port, source) as connection:
        assert connection.ask(data).status == 200


def ways(**headers: str) -> dict[str, bytes]:
    """Return a request for each way through an HTTP frontend."""
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
    transport = httpx.HTTPTransport(http1=False, http2=True, local_address=source, verify=False)
    with httpx.Client(transport=transport) as client:
        address = f"http://127.0.0.1:{server.port}{predict_target('matmul')}"
        assert client.post(address, content=BODY, headers=lines).status_code == 200


def over_grpc(server: Server, *metadata: tuple[str, str]) -> None:
    with Stub(grpc_port(server)) as stub:
        end = stub.infer("matmul", {**TENSOR, "contents": FP32}, metadata=metadata)
        assert end.code == "OK", end.text


def test_each_address_is_an_account_on_every_way(server: Server, slots: Slots) -> None:
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


def test_only_a_trusted_proxy_names_the_account_of_a_request(server: Server, slots: Slots) -> None:
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


def test_a_request_may_name_its_class_on_every_way(server: Server, slots: Slots) -> None:
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


NAMED: Final = {
    # X-Priority, the parameter priority, the class
    "level 1": ("", 1, PriorityClass.INTERACTIVE),
    "level 2": ("", 2, PriorityClass.NORMAL),
    "level 7": ("", 7, PriorityClass.BULK),
    "level 0": ("", 0, PriorityClass.NORMAL),
    "name": ("", "bulk", PriorityClass.BULK),
    "both, the header lower": ("bulk", 1, PriorityClass.BULK),
    "both, the body lower": ("interactive", 2, PriorityClass.NORMAL),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_body_may_name_its_class_over_v2_and_grpc(
    server: Server, slots: Slots, case: str
) -> None:
    header, priority, wanted = NAMED[case]
    lines = {"X-Priority": header} if header else {}
    parameters = {"priority": priority}
    for _ in range(2):
        asked(server, request("/v2/models/matmul/infer", v2_body(parameters), headers=lines))
        assert class_of(slots.last()) is wanted
    kind = "int64_param" if isinstance(priority, int) else "string_param"
    message = {**TENSOR, "contents": FP32}
    with Stub(grpc_port(server)) as stub:
        metadata = [(name.lower(), value) for name, value in lines.items()]
        given = {"priority": {kind: priority}}
        end = stub.infer("matmul", message, parameters=given, metadata=metadata)
        assert end.code == "OK", end.text
    assert class_of(slots.last()) is wanted


LARGE_ROWS: Final = 2048
"""Too large for the event loop in JSON, and going straight into a slot as bytes."""


@pytest.mark.parametrize("binary", [True, False])
def test_a_large_body_names_its_class_however_it_is_read(
    server: Server, slots: Slots, binary: bool
) -> None:
    tensor: dict[str, Any] = {**TENSOR, "shape": [LARGE_ROWS, 16]}
    values, numbers = np.ones((LARGE_ROWS, 16), "<f4").tobytes(), ROW * LARGE_ROWS
    given = {"parameters": {"binary_data_size": len(values)}} if binary else {"data": numbers}
    body = {"inputs": [tensor | given], "parameters": {"priority": 3}}
    text = json.dumps(body).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))} if binary else {}
    text += values if binary else b""
    asked(server, request("/v2/models/matmul/infer", text, headers=headers))
    assert class_of(slots.last()) is PriorityClass.BULK
    level = {"priority": {"int64_param": 1}}
    typed = {} if binary else {"contents": {"fp32_contents": numbers}}
    raw: dict[str, Any] = {"raw_input_contents": [values]} if binary else {}
    with Stub(grpc_port(server)) as stub:
        end = stub.infer("matmul", tensor | typed, parameters=level, **raw)
        assert end.code == "OK", end.text
    assert class_of(slots.last()) is PriorityClass.INTERACTIVE


def test_a_wrong_priority_is_refused_in_words(server: Server) -> None:
    right = "not a whole number from 0 to 18446744073709551615, nor interactive, normal or bulk"
    wrong = f'parameter "priority" is "urgent", {right}'
    with Connection(server.port) as connection:
        body = v2_body({"priority": "urgent"})
        answer = connection.ask(request("/v2/models/matmul/infer", body))
    assert (answer.status, answer.error) == (400, wrong)
    with Stub(grpc_port(server)) as stub:
        given = {"priority": {"string_param": "urgent"}}
        end = stub.infer("matmul", {**TENSOR, "contents": FP32}, parameters=given)
    assert (end.code, end.text) == ("INVALID_ARGUMENT", wrong)


def test_a_program_names_the_class_of_its_requests(server: Server, slots: Slots) -> None:
    row = np.array([ROW], np.float32)
    with Client(server.pid, priority="bulk") as client:
        client.infer("matmul", row)
        lane = identity_of(slots.last())
        assert slots.last() == account_word(lane, PriorityClass.BULK)
        client.infer("matmul", row, priority="interactive")
        assert slots.last() == account_word(lane, PriorityClass.INTERACTIVE)
        client.infer_async("matmul", row).result()
        assert slots.last() == account_word(lane, PriorityClass.BULK)
        client.infer_many("matmul", row, priority="normal")
        assert slots.last() == lane
        with pytest.raises(ValueError, match="priority is 'urgent', not interactive, normal"):
            client.infer("matmul", row, priority="urgent")
    with pytest.raises(ValueError, match="priority is 'urgent', not interactive, normal"):
        Client(server.pid, priority="urgent")


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


def test_without_a_key_no_class_is_above_the_highest(start: Start) -> None:
    server = start(MODELS, grpc_port=0, highest_class="normal")
    slots = Slots(server)
    interactive = request("/v2/models/matmul/infer", v2_body({"priority": 1}))
    for way, data in {**ways(X_Priority="interactive"), "body": interactive}.items():
        if way not in ("app", "thread"):
            asked(server, data)
            assert class_of(slots.last()) is PriorityClass.NORMAL, way
    over_grpc(server, ("x-priority", "interactive"))
    assert class_of(slots.last()) is PriorityClass.NORMAL
    over_grpc(server, ("x-priority", "bulk"))
    assert class_of(slots.last()) is PriorityClass.BULK
    slots.close()


@exhaustive
def test_without_fair_shares_all_are_nobody(start: Start) -> None:
    server = start(MODELS, fair_shares=False, grpc_port=0)
    slots = Slots(server)
    asked(server, request("/v2/models/matmul/infer", v2_body({"priority": 1})))
    for source in (PROXY, CLIENT):
        for way, data in ways().items():
            if way not in ("app", "thread"):
                asked(server, data, source)
    over_grpc(server)
    assert slots.written() == {NOBODY}
    with Client(server.pid, priority="bulk") as client:
        client.infer("matmul", np.array([ROW], np.float32))
        assert slots.last() == NOBODY
    slots.close()
