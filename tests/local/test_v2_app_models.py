"""Server and models as V2 describes them: metadata, settings, statistics, the index."""

import asyncio
import time
from typing import Any

import pytest
from falcon.testing import ASGIConductor
from segment_fixture import local_segment, spec
from v2_app_harness import MAX_REQUEST_BYTES, MODELS, TARGET, read

from ringbatch.frontend.falcon.app import create_app
from ringbatch.frontend.request.gateway import Gateway
from ringbatch.frontend.request.service import Service
from ringbatch.shm.lane import Lane
from ringbatch.shm.tensor import Tensor


@pytest.mark.parametrize("path", ["/v2/models/sum", "/v2/models/sum/versions/1"])
def test_metadata_shows_the_batch_as_the_first_dimension(path: str) -> None:
    tensors = ["a", "b"], ["sum", "diff"]
    inputs, outputs = (
        [{"name": name, "datatype": "INT64", "shape": [-1, -1]} for name in names]
        for names in tensors
    )
    assert read(path).json == {
        "name": "sum",
        "versions": ["1"],
        "platform": "python",
        "inputs": inputs,
        "outputs": outputs,
    }


def test_server_metadata_names_working_extensions() -> None:
    answer = read("/v2").json
    assert list(answer) == ["name", "version", "extensions"]
    assert answer["name"] == "ringbatch"
    assert answer["extensions"] == [
        "binary_tensor_data",
        "parameters",
        "statistics",
        "classification",
        "model_configuration",
        "trace",
        "logging",
    ]
    assert read("/v2/").json == answer


def test_models_are_listed() -> None:
    assert read("/v2/models").json == {"models": [given.name for given, _ in MODELS]}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v2/models/addone/ready", 200),
        ("/v2/models/addone/versions/1/ready", 200),
        ("/v2/models/loading/ready", 503),
        ("/v2/models/nope/ready", 404),
        ("/v2/models/nope", 404),
        ("/v2/models/nope/stats", 404),
        ("/v2/models/nope/versions/1/stats", 404),
        ("/v2/models/addone/versions/2/config", 404),
        ("/v2/models/nope/config", 404),
        ("/v2/models/nope/trace/setting", 404),
        ("/v2/models/addone/", 404),
        ("/v2/models/addone/versions", 404),
        ("/v2/repository/models/addone/load", 405),
        ("/v2/repository/models/addone/unload", 405),
        ("/v2/systemsharedmemory/status", 501),
        ("/v2/systemsharedmemory/region/r/status", 501),
        ("/v2/cudasharedmemory/region/r/status", 404),
        ("/v2/nothing", 404),
    ],
)
def test_each_path_of_a_model_can_be_read(path: str, status: int) -> None:
    got = read(path)
    assert got.status_code == status
    assert got.json == {"name": "addone", "ready": True} if status == 200 else got.json["error"]


@pytest.mark.parametrize("path", ["/v2/models/sum/config", "/v2/models/sum/versions/1/config"])
def test_a_model_is_shown_as_triton_would_have_it_configured(path: str) -> None:
    found = read(path).json
    assert (found["name"], found["max_batch_size"]) == ("sum", 32)
    assert [(entry["name"], entry["dims"]) for entry in found["input"]] == [
        ("a", [-1]),
        ("b", [-1]),
    ]


@pytest.mark.parametrize(
    ("path", "setting", "other"),
    [
        ("/v2/trace/setting", {"trace_level": ["OFF"], "trace_rate": None}, {"trace_rate": "5"}),
        ("/v2/models/sum/trace/setting", {"trace_level": ["OFF"]}, {"trace_level": ["TENSORS"]}),
        ("/v2/logging", {"log_error": True}, {"log_verbose_level": 3}),
    ],
)
def test_settings_are_shown_and_stay(path: str, setting: Any, other: Any) -> None:
    shown = read(path).json
    assert read(path, "POST", json=setting).json == shown
    assert read(path, "POST").json == shown
    assert read(path, "POST", json=other).status_code == 501
    assert read(path, "POST", json={"nope": 1}).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", TARGET, "POST"),
        ("POST", "/v2/models/addone", "GET"),
        ("POST", "/v2", "GET"),
        ("DELETE", "/v2/models/stats", "GET"),
        ("GET", "/v2/repository/index", "POST"),
    ],
)
def test_a_wrong_method_gets_the_allowed_ones(method: str, path: str, allowed: str) -> None:
    got = read(path, method)
    assert got.status_code == 405
    assert allowed in got.headers["allow"].split(", ")
    assert got.json["error"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "OPTIONS"])
def test_a_path_for_models_that_are_not_served_is_none_for_any_method(method: str) -> None:
    got = read("/predict", method)
    assert (got.status_code, "allow" in got.headers) == (404, False)


@pytest.mark.parametrize("path", ["/v2/models/sum/stats", "/v2/models/sum/versions/1/stats"])
def test_statistics_are_those_of_the_segment(path: str) -> None:
    (stats,) = read(path).json["model_stats"]
    inferences = stats.pop("inference_stats")
    last = stats.pop("last_inference")
    # The model was last asked right after the monotonic clock's beginning.
    began_ms = (time.time_ns() - time.monotonic_ns()) // 1_000_000
    assert abs(last - began_ms) < 60_000
    sizes = {entry["batch_size"]: entry for entry in stats.pop("batch_stats")}
    assert stats == {
        "name": "sum",
        "version": "1",
        "inference_count": 40,
        "execution_count": 2,
        "response_stats": {},
        "memory_usage": [],
    }
    assert inferences == {
        "success": {"count": 4, "ns": 4000},
        "fail": {"count": 1, "ns": 50},
        "queue": {"count": 3, "ns": 50},
        "compute_input": {"count": 4, "ns": 16},
        "compute_infer": {"count": 4, "ns": 700},
        "compute_output": {"count": 4, "ns": 23},
        "cache_hit": {"count": 0, "ns": 0},
        "cache_miss": {"count": 0, "ns": 0},
    }
    assert sizes == {
        10: {
            "batch_size": 10,
            "compute_input": {"count": 1, "ns": 1},
            "compute_infer": {"count": 1, "ns": 100},
            "compute_output": {"count": 1, "ns": 2},
        },
        30: {
            "batch_size": 30,
            "compute_input": {"count": 1, "ns": 5},
            "compute_infer": {"count": 1, "ns": 200},
            "compute_output": {"count": 1, "ns": 7},
        },
    }


def test_statistics_of_all_models_are_in_one_list() -> None:
    stats = read("/v2/models/stats").json["model_stats"]
    assert [entry["name"] for entry in stats] == [given.name for given, _ in MODELS]
    assert read("/v2/models/sum/stats").json["model_stats"] == [stats[3]]


@pytest.mark.parametrize("rest", ["", "/stats", "/versions/1", "/versions/1/stats"])
@pytest.mark.parametrize("name", ["stats", "versions", "ready", "index", "infer", "models"])
def test_a_model_may_be_called_like_any_part_of_a_path(name: str, rest: str) -> None:
    async def asked() -> tuple[Any, Any]:
        tensor = Tensor("x", "FP32", [2])
        segment = local_segment(*(spec(i, [tensor], [tensor], name=n) for i, n in enumerate(names)))
        gateway = Gateway(Lane(segment, 0, lambda: None), asyncio.get_running_loop())
        app = create_app(Service(segment, gateway, time.monotonic_ns), MAX_REQUEST_BYTES)
        async with ASGIConductor(app) as conductor:
            found = [await conductor.simulate_get(f"/v2/models/{one}{rest}") for one in names]
        gateway.close()
        return found[0].json, found[1].json

    names = (name, "plain")
    one, plain = asyncio.run(asked())
    if "model_stats" in plain:
        (one,), (plain,) = one["model_stats"], plain["model_stats"]
    assert (one.pop("name"), plain.pop("name")) == names
    assert one == plain


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"", [given.name for given, _ in MODELS]),
        (b"{}", [given.name for given, _ in MODELS]),
        (b'{"ready":false}', [given.name for given, _ in MODELS]),
        (b'{"ready":true}', [given.name for given, _ in MODELS if given.name != "loading"]),
    ],
)
def test_the_index_shows_the_ready_models(body: bytes, names: list[str]) -> None:
    entries = read("/v2/repository/index", "POST", body=body).json
    assert [entry["name"] for entry in entries] == names
    for entry in entries:
        assert entry["version"] == "1"
        state = "UNAVAILABLE" if entry["name"] == "loading" else "READY"
        assert entry["state"] == state
        assert bool(entry["reason"]) == (state != "READY")


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"nope", 400), (b"[]", 400), (b'{"ready":1}', 400), (b" " * 70_000, 413)],
)
def test_an_index_request_that_is_none_is_refused(body: bytes, status: int) -> None:
    got = read("/v2/repository/index", "POST", body=body)
    assert (got.status_code, list(got.json)) == (status, ["error"])
