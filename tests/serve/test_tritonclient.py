"""Triton's own client over HTTP, sync and asyncio, against a real server: every call it has."""

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http
import tritonclient.http.aio
from numpy.typing import NDArray
from serve.client import Connection, request
from serve.server import Server, Start
from tritonclient.http import InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException, serialized_byte_size
from tritonclient.utils import shared_memory as shm

from ringbatch.shm.shm_objects import DIRECTORY

ADD = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "{datatype}", [-1])]
outputs = [Tensor("y", "{datatype}", [-1]), Tensor("z", "{datatype}", [-1])]
def predict(x):
    return x + x, x
"""
VALUES: dict[str, list[list[Any]]] = {
    "FP32": [[1.5, -2.0, 2.0**100], [0.0, 4.0, 5.0]],
    "INT64": [[1, -(1 << 62), 0], [3, 4, 5]],
    "FP16": [[1.5, -2.0, 0.25]],
    "BYTES": [[b"ab", b"", "é".encode()], [b"x", b"y" * 300, b"z"]],
}
DTYPES = {"FP32": np.float32, "INT64": np.int64, "FP16": np.float16, "BYTES": np.object_}
PREFIX = f"rbtriton_{os.getpid()}_"
CUDA = b"a handle of CUDA's"


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    folder = tmp_path_factory.mktemp("models")
    models = {}
    for datatype in VALUES:
        path: Path = folder / f"{datatype}.py"
        path.write_text(ADD.format(datatype=datatype))
        models[datatype] = {"path": str(path)}
    return start_for_module(
        models, frontends=2, shared_memory_prefixes=[f"/{PREFIX}"], compress_answers=True
    )


class Awaited:
    """The asyncio client, each of whose calls is waited for."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._client = self._loop.run_until_complete(self._make(url))

    async def _make(self, url: str) -> Any:
        return tritonclient.http.aio.InferenceServerClient(url)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        return lambda *given, **named: self._loop.run_until_complete(call(*given, **named))

    def close(self) -> None:
        self._loop.run_until_complete(self._client.close())
        self._loop.close()


@pytest.fixture(scope="module", params=["sync", "asyncio"])
def client(server: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    url = f"127.0.0.1:{server.port}"
    made: Any = Awaited(url)
    if request.param == "sync":
        made.close()
        made = tritonclient.http.InferenceServerClient(url, concurrency=4)
    yield made
    made.close()


def array(datatype: str) -> NDArray[Any]:
    return np.array(VALUES[datatype], DTYPES[datatype])


def given(datatype: str, *, binary: bool = True) -> InferInput:
    values = array(datatype)
    made = InferInput("x", list(values.shape), datatype)
    made.set_data_from_numpy(values, binary_data=binary)
    return made


def wanted(*names: str, **more: Any) -> list[InferRequestedOutput]:
    return [InferRequestedOutput(name, **more) for name in names]


def doubled(datatype: str) -> list[list[Any]]:
    values = array(datatype)
    return (values + values).tolist()  # type: ignore[no-any-return]


def as_list(result: Any, name: str) -> list[Any]:
    """An output's values; strings as bytes, however they came."""
    found = result.as_numpy(name)
    if found.dtype == np.object_:
        encoded = [v if isinstance(v, bytes) else v.encode() for v in found.reshape(-1)]
        found = np.array(encoded, object).reshape(found.shape)
    values: list[Any] = found.tolist()
    return values


def refused(statuses: str, call: Callable[..., Any], *given: Any, **named: Any) -> str:
    with pytest.raises(InferenceServerException) as caught:
        call(*given, **named)
    assert caught.value.status() in statuses.split()
    text: str = caught.value.message()
    assert "exception occurred in the client" not in text
    assert "nothing is at" not in text
    return text


def test_health(client: Any) -> None:
    assert client.is_server_live() is True
    assert client.is_server_ready() is True
    assert client.is_model_ready("FP32") is True
    assert client.is_model_ready("FP32", "1") is True
    assert client.is_model_ready("FP32", "2") is False
    assert client.is_model_ready("nope") is False


def test_metadata(client: Any) -> None:
    server = client.get_server_metadata(headers={"X-Odd": "1"}, query_params={"a": [1, "b"]})
    assert server["name"] == "ringbatch"
    assert {"binary_tensor_data", "parameters", "statistics", "system_shared_memory"} <= set(
        server["extensions"]
    )
    for version in ("", "1"):
        assert client.get_model_metadata("INT64", version) == {
            "name": "INT64",
            "versions": ["1"],
            "platform": "python",
            "inputs": [{"name": "x", "datatype": "INT64", "shape": [-1, -1]}],
            "outputs": [
                {"name": name, "datatype": "INT64", "shape": [-1, -1]} for name in ("y", "z")
            ],
        }
    assert 'no model "nope"' in refused("404", client.get_model_metadata, "nope")
    assert "no version" in refused("404", client.get_model_metadata, "INT64", "9")


def test_configurations_and_settings(client: Any) -> None:
    for version in ("", "1"):
        found = client.get_model_config("INT64", version)
        assert (found["name"], found["max_batch_size"]) == ("INT64", 32)
        assert [(one["data_type"], one["dims"]) for one in found["input"]] == [("TYPE_INT64", [-1])]
    assert "Request for unknown model" in refused("404", client.get_model_config, "nope")
    for model in (None, "FP32"):
        trace = client.get_trace_settings(model)
        assert trace["trace_level"] == ["OFF"]
        assert client.update_trace_settings(model, {"trace_level": "OFF"}) == trace
    assert "unknown model" in refused("404", client.get_trace_settings, "nope")
    log = client.get_log_settings()
    assert (log["log_error"], log["log_verbose_level"]) == (True, 0)
    assert client.update_log_settings({"log_error": True}) == log


def test_the_repository_index(client: Any) -> None:
    index = client.get_model_repository_index()
    assert {entry["name"] for entry in index} == set(VALUES)
    assert {(entry["version"], entry["state"]) for entry in index} == {("1", "READY")}


def test_statistics(client: Any) -> None:
    def counted(*which: str) -> int:
        stats = client.get_inference_statistics(*which)["model_stats"]
        (found,) = [entry for entry in stats if entry["name"] == "FP32"]
        assert found["inference_stats"]["success"]["count"] >= 0
        count: int = found["inference_count"]
        return count

    before = counted("FP32")
    client.infer("FP32", [given("FP32")])
    assert counted("FP32") == counted() == counted("FP32", "1") == before + 2
    assert "nope" in refused("404", client.get_inference_statistics, "nope")


@pytest.mark.parametrize("binary_out", [True, False])
@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BYTES"])
def test_infer_as_json_and_binary(
    client: Any, datatype: str, binary_in: bool, binary_out: bool
) -> None:
    result = client.infer(
        datatype,
        [given(datatype, binary=binary_in)],
        outputs=wanted("z", "y", binary_data=binary_out),
        request_id="é 7",
    )
    assert as_list(result, "y") == doubled(datatype)
    assert as_list(result, "z") == VALUES[datatype]
    assert result.as_numpy("nope") is None
    answer = result.get_response()
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("é 7", datatype, "1")
    assert [output["name"] for output in answer["outputs"]] == ["z", "y"]
    assert ("data" in result.get_output("y")) != binary_out


@pytest.mark.parametrize("datatype", VALUES)
def test_infer_as_its_defaults_have_it(client: Any, datatype: str) -> None:
    result = client.infer(datatype, [given(datatype)], model_version="1")
    assert as_list(result, "y") == doubled(datatype)
    assert as_list(result, "z") == VALUES[datatype]
    assert "id" not in result.get_response()
    one = client.infer(datatype, [given(datatype)], outputs=wanted("z"))
    assert one.as_numpy("y") is None
    assert as_list(one, "z") == VALUES[datatype]


def test_parameters(client: Any) -> None:
    result = client.infer(
        "INT64",
        [given("INT64")],
        priority=3,
        timeout=30_000_000,
        sequence_id=7,
        sequence_start=True,
        headers={"X-Odd": "1"},
        query_params={"a": "b"},
        parameters={"mine": 1, "other": "two", "third": True},
    )
    assert as_list(result, "y") == doubled("INT64")
    # Where a batch is still under way, no answer can come in time, which is known at once.
    assert refused("503 504", client.infer, "INT64", [given("INT64")], timeout=1)


@pytest.mark.parametrize("response", [None, "gzip", "deflate"])
@pytest.mark.parametrize("asked", [None, "gzip", "deflate"])
def test_compression(client: Any, asked: str | None, response: str | None) -> None:
    values = np.tile(np.arange(9, dtype=np.int64), (2, 300))
    x = InferInput("x", list(values.shape), "INT64").set_data_from_numpy(values)
    result = client.infer(
        "INT64",
        [x],
        request_compression_algorithm=asked,
        response_compression_algorithm=response,
    )
    assert (result.as_numpy("y") == values * 2).all()


@pytest.mark.parametrize(
    ("model", "make", "text"),
    [
        ("nope", lambda: given("FP32"), 'no model "nope"'),
        ("INT64", lambda: given("FP32"), 'input "x" is FP32, but model "INT64" takes INT64'),
        ("FP32", lambda: InferInput("x", [1, 1], "FP32"), "neither data nor a binary_data_size"),
    ],
)
def test_a_fault_is_an_exception_with_words(
    client: Any, model: str, make: Callable[[], InferInput], text: str
) -> None:
    status = "404" if model == "nope" else "400"
    assert text in refused(status, client.infer, model, [make()])
    assert "outputs[0]" in refused(
        "400", client.infer, "FP32", [given("FP32")], outputs=wanted("q")
    )


def test_async_infer(server: Server) -> None:
    with tritonclient.http.InferenceServerClient(
        f"127.0.0.1:{server.port}", concurrency=8
    ) as client:
        before = client.get_inference_statistics("FP32")["model_stats"][0]["inference_count"]
        pending = [
            client.async_infer("FP32", [given("FP32")], request_id=str(number))
            for number in range(30)
        ]
        for number, one in enumerate(pending):
            result = one.get_result()
            assert result.get_response()["id"] == str(number)
            assert as_list(result, "y") == doubled("FP32")
        after = client.get_inference_statistics("FP32")["model_stats"][0]["inference_count"]
        assert after == before + 60
        wrong = client.async_infer("FP32", [given("INT64")])
        assert "is INT64" in refused("400", wrong.get_result)


def test_many_at_once_over_asyncio(server: Server) -> None:
    async def ask() -> list[Any]:
        url = f"127.0.0.1:{server.port}"
        async with tritonclient.http.aio.InferenceServerClient(url, conn_limit=8) as client:
            asked = [
                client.infer("INT64", [given("INT64")], request_id=str(number))
                for number in range(30)
            ]
            return await asyncio.gather(*asked)

    for number, result in enumerate(asyncio.run(ask())):
        assert result.get_response()["id"] == str(number)
        assert as_list(result, "y") == doubled("INT64")


@pytest.mark.parametrize(
    "kind", [tritonclient.http.InferenceServerClient, tritonclient.http.aio.InferenceServerClient]
)
def test_bodies_made_and_read_by_hand(server: Server, kind: Any) -> None:
    body, json_size = kind.generate_request_body([given("BYTES")], request_id="h")
    headers = {"Inference-Header-Content-Length": str(json_size)}
    with Connection(server.port) as connection:
        answer = connection.ask(request("/v2/models/BYTES/infer", body, headers=headers))
    size = int(answer.headers["inference-header-content-length"])
    result = kind.parse_response_body(answer.body, header_length=size)
    assert result.get_response()["id"] == "h"
    assert as_list(result, "y") == doubled("BYTES")


# Shared memory


@pytest.fixture
def memory(client: Any) -> Iterator[Callable[..., Any]]:
    """`memory(name, size)`: a registered region of that size, and its handle."""
    handles = []

    def make(name: str, size: int) -> Any:
        key = f"/{PREFIX}{name[0]}"
        handles.append(shm.create_shared_memory_region(name, key, size, create_only=True))
        client.register_system_shared_memory(name, key, size)
        return handles[-1]

    yield make
    client.unregister_system_shared_memory()
    for handle in handles:
        shm.destroy_shared_memory_region(handle)
    assert list(DIRECTORY.glob(f"{PREFIX}*")) == []


def test_regions_come_and_go(client: Any, memory: Callable[..., Any]) -> None:
    assert client.get_system_shared_memory_status() == []
    memory("a", 64)
    memory("b dé?", 8)
    shown = {entry["name"]: entry for entry in client.get_system_shared_memory_status()}
    assert shown["a"] == {"name": "a", "key": f"/{PREFIX}a", "offset": 0, "byte_size": 64}
    assert client.get_system_shared_memory_status("a") == [shown["a"]]
    key = f"/{PREFIX}a"
    assert "registered already" in refused(
        "400", client.register_system_shared_memory, "a", key, 64
    )
    assert "not within" in refused("400", client.register_system_shared_memory, "d", key, 65)
    assert "not within" in refused(
        "400", client.register_system_shared_memory, "d", key, 60, offset=8
    )
    client.register_system_shared_memory("d", key, 56, offset=8)
    client.unregister_system_shared_memory("a")
    client.unregister_system_shared_memory("a")
    refused("404", client.get_system_shared_memory_status, "a")
    assert {e["name"] for e in client.get_system_shared_memory_status()} == {"b dé?", "d"}
    client.unregister_system_shared_memory()
    assert client.get_system_shared_memory_status() == []


@pytest.mark.parametrize("datatype", ["FP32", "INT64", "FP16"])
def test_infer_from_and_to_shared_memory(
    client: Any, memory: Callable[..., Any], datatype: str
) -> None:
    values = array(datatype)
    size = values.nbytes
    handle = memory("io", 4 * size)
    shm.set_shared_memory_region(handle, [values], offset=size)
    x = InferInput("x", list(values.shape), datatype)
    x.set_shared_memory("io", size, offset=size)
    y, z = wanted("y", "z")
    y.set_shared_memory("io", size)
    z.set_shared_memory("io", 2 * size, offset=2 * size)
    result = client.infer(datatype, [x], outputs=[y, z])
    output = result.get_output("y")
    assert output == {"name": "y", "datatype": datatype, "shape": list(values.shape)}
    found = shm.get_contents_as_numpy(handle, DTYPES[datatype], output["shape"])
    assert found.tolist() == doubled(datatype)
    found = shm.get_contents_as_numpy(handle, DTYPES[datatype], output["shape"], 2 * size)
    assert found.tolist() == VALUES[datatype]
    del found


def test_strings_from_and_to_shared_memory(client: Any, memory: Callable[..., Any]) -> None:
    values = array("BYTES")
    packed = tritonclient.utils.serialize_byte_tensor(values)
    size = serialized_byte_size(packed)
    handle = memory("strings", 1 << 12)
    shm.set_shared_memory_region(handle, [packed])
    x = InferInput("x", list(values.shape), "BYTES")
    x.set_shared_memory("strings", size)
    (y,) = wanted("y")
    y.set_shared_memory("strings", 2048, offset=2048)
    result = client.infer("BYTES", [x], outputs=[y, *wanted("z")])
    assert as_list(result, "z") == VALUES["BYTES"]
    shape = result.get_output("y")["shape"]
    found = shm.get_contents_as_numpy(handle, np.object_, shape, offset=2048)
    assert found.tolist() == doubled("BYTES")


def test_shared_memory_may_be_taken_back(client: Any, memory: Callable[..., Any]) -> None:
    memory("r", 64)
    x = given("FP32")
    (y,) = wanted("y")
    y.set_shared_memory("r", 4)
    assert "more than the 4 of shared memory" in refused(
        "400", client.infer, "FP32", [x], outputs=[y]
    )
    y.unset_shared_memory()
    assert as_list(client.infer("FP32", [x], outputs=[y]), "y") == doubled("FP32")
    x.set_shared_memory("r", 24)
    client.infer("FP32", [x])
    client.unregister_system_shared_memory("r")
    assert 'no shared memory region "r"' in refused("404", client.infer, "FP32", [x])


def test_memory_that_is_not_to_be_shared(client: Any) -> None:
    for key in ("/other", f"/{PREFIX}/../x", "/ringbatch.1.2.3", "/sem.x"):
        assert "key" in refused("400", client.register_system_shared_memory, "r", key, 8)
    assert "could open" in refused(
        "404", client.register_system_shared_memory, "r", f"/{PREFIX}none", 8
    )


# What there is not


@pytest.mark.parametrize(
    ("call", "given", "words"),
    [
        ("load_model", ("FP32",), "loading and unloading models is not supported"),
        ("unload_model", ("FP32",), "loading and unloading models is not supported"),
        ("update_trace_settings", ("FP32", {"trace_level": "TENSORS"}), "cannot be set to"),
        ("update_trace_settings", (None, {"trace_rate": "7"}), "set [server] trace_sample"),
        ("update_log_settings", ({"log_verbose_level": 1},), "set [server] log_level"),
        ("register_cuda_shared_memory", ("r", "YQ==", 0, 8), "CUDA shared memory is not supported"),
    ],
)
def test_a_missing_feature_is_refused_as_such(
    client: Any, call: str, given: tuple[Any, ...], words: str
) -> None:
    assert words in refused("501", getattr(client, call), *given)


def test_cuda_has_no_regions(client: Any) -> None:
    assert client.get_cuda_shared_memory_status() == []
    assert "no CUDA" in refused("404", client.get_cuda_shared_memory_status, "r")
    client.unregister_cuda_shared_memory("r")
    client.unregister_cuda_shared_memory()


def test_no_call_of_the_client_is_left_out() -> None:
    tested = set(Path(__file__).read_text().replace("(", " ").replace('"', " ").split())
    tested |= {word.rpartition(".")[2] for word in tested}
    for kind in (
        tritonclient.http.InferenceServerClient,
        tritonclient.http.aio.InferenceServerClient,
    ):
        calls = {name for name in dir(kind) if not name.startswith("_")}
        assert len(calls) > 20
        assert calls - tested - {"plugin", "register_plugin", "unregister_plugin"} == set()
