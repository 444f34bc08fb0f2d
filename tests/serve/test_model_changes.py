"""Limits, workers and versions of models that change while they serve."""

import json
import signal
from typing import Any

import numpy as np
import pytest
import reload_site
import tritonclient.grpc
import tritonclient.http
from reload_site import Load, Site, WaitUntil, goes_on
from serve.client import Connection, fast, instances, request
from serve.grpc_stub import grpc_port
from tiers import only
from tritonclient.utils import InferenceServerException

from ringbatch.frontend import Client

common_site, site, load = reload_site.common_site, reload_site.site, reload_site.load


def test_limits_policy_and_the_number_of_workers_change_without_loading(
    site: Site, load: Load, wait_until: WaitUntil
) -> None:
    first = site.server.role("worker m/0")
    deaths = site.server.status().collector["worker_deaths"]
    own = {"path": "m.py", "workers": 3, "max_batch_size": 4, "policy": "fixed"}
    site.configure({"m": own | {"max_latency_ms": 1}}, frontends=3)
    done = site.reload()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "ringbatch: [server] frontends: not taken, because the engine runs; ringbatch handover "
        "takes it, and so does a restart\n"
        "ringbatch: m: version 1 adjusted\n"
    )
    assert site.workers() == ["m/0", "m/1", "m/2"]
    goes_on(load, wait_until)
    with Connection(site.server.port) as connection:
        answer = connection.ask(fast("m", instances(*range(50))))
    assert answer.json["predictions"] == [[1, value] for value in range(50)]
    assert site.server.status().models["m"].workers == 3
    site.configure({"m": {"path": "m.py", "kserve_errors": True}})
    assert site.reload().returncode == 0
    wait_until(lambda: site.workers() == ["m/0"], "two workers are gone")
    assert site.server.role("worker m/0") == first
    goes_on(load, wait_until)
    assert site.post("/v1/models/m:predict", b"{").body == b"can't Unmarshal body\n"
    assert site.server.status().collector["worker_deaths"] == deaths
    site.configure({"m": {"path": "m.py", "workers": 64}})
    assert "Restart the engine with a larger [server] spare_workers" in site.reload().stderr


def test_versions_are_served_side_by_side_and_come_and_go(
    site: Site, wait_until: WaitUntil
) -> None:
    site.write(2, "two.py")
    site.write(10, "ten.py")

    def configure(versions: dict[str, str], **of_all: str) -> None:
        models = {f'm.versions."{v}"': {"path": path} for v, path in versions.items()}
        site.configure({"m": of_all} | models | {"n": {"path": "two.py"}})

    configure({"1": "m.py", "2": "two.py", "10": "ten.py"})
    logged = len(site.server.stderr)
    site.server.process.send_signal(signal.SIGHUP)
    states = ["READY"] * 4
    wait_until(lambda: [state for *_, state in site.index()] == states, "all are loaded")
    assert "ERROR" not in site.server.stderr[logged:]
    assert site.reload().stdout == "ringbatch: nothing has changed\n"
    assert site.server.stderr[logged:].count("version 10 loaded") == 1
    assert [site.number(f"m{v}") for v in ("", "/versions/1", "/versions/2", "/versions/10")] == [
        *(10, 1, 2, 10)
    ]
    with Connection(site.server.port) as connection:
        described = connection.ask(request("/v2/models/m", method="GET"))
        assert described.json["versions"] == ["1", "2", "10"]
        missing = connection.ask(fast("m/versions/3", instances(0)))
        assert missing.error == 'model "m" has version "1" and "2" and "10" and no version "3"'
        assert missing.status == 404
        ready = connection.ask(request("/v2/models/m/versions/2/ready", method="GET"))
        assert ready.status == 200
        with Client(site.server.pid) as client:
            assert client.infer("m", [5]) == [[10, 5]]
            configure({"1": "m.py", "2": "two.py"}, default_version="1")
            assert site.reload().returncode == 0
            assert client.infer("m", [6]) == [[1, 6]]
        assert connection.ask(fast("m", instances(7))).json["predictions"] == [[1, 7]]
        assert connection.ask(fast("m/versions/10", instances(7))).status == 404
    assert site.post("/v2/repository/models/m/unload").json == {"name": "m", "unload": True}
    assert site.ask(0).error == 'Request for unknown model: there is no model "m"; there is: n'
    assert site.post("/v2/repository/models/m/unload").status == 404
    assert site.post("/v2/repository/models/m/load").json == {"name": "m", "load": True}
    assert site.number() == 1
    described_now = json.dumps(site.post("/v2/repository/index").json)
    assert described_now.count('"READY"') == 3


TYPED = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [1])]
outputs = [Tensor("y", "FP32", [1])]
def predict(x):
    return x + {number}
"""


@pytest.mark.parametrize(
    "library", only({"http": tritonclient.http, "grpc": tritonclient.grpc}, "grpc")
)
def test_tritons_client_loads_versions_asks_for_them_and_unloads_them(
    site: Site, library: Any
) -> None:
    port = site.server.port if library is tritonclient.http else grpc_port(site.server)
    for number in (1, 2):
        (site.folder / f"typed{number}.py").write_text(TYPED.format(number=number))
    versions = {f"t.versions.{number}": {"path": f"typed{number}.py"} for number in (1, 2)}
    site.configure({"m": {"path": "m.py"}} | versions)
    x = library.InferInput("x", [1, 1], "FP32")
    x.set_data_from_numpy(np.zeros((1, 1), np.float32))
    with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
        assert not _ready(client, "t")
        client.load_model("t")
        for version, expected in (("", 2), ("1", 1), ("2", 2)):
            assert client.is_model_ready("t", version)
            found = client.infer("t", [x], model_version=version)
            assert found.as_numpy("y").tolist() == [[expected]]
            answer = found.get_response()
            named = answer["model_version"] if isinstance(answer, dict) else answer.model_version
            assert named == str(expected)
        with pytest.raises(InferenceServerException, match="no version"):
            client.infer("t", [x], model_version="3")
        (site.folder / "typed1.py").write_text("import nothing_there")
        with pytest.raises(
            InferenceServerException, match=r'failed to load "t": typed1.py: .*nothing_there'
        ):
            client.load_model("t")
        (site.folder / "typed1.py").write_text(TYPED.format(number=1))
        with pytest.raises(InferenceServerException, match="is not accepted"):
            client.load_model("t", config="{}", files={"file:1/model.py": b"x"})
        for wrong in ("{", '{"max_batch_size":-1}', '{"backend":"other"}'):
            with pytest.raises(InferenceServerException, match="failed to load"):
                client.load_model("t", config=wrong)
        client.load_model("t", config='{"max_batch_size":"16"}')
        assert _largest_batch(client, "t") == 16
        assert client.infer("t", [x], model_version="1").as_numpy("y").tolist() == [[1]]
        site.reload()
        assert _largest_batch(client, "t") == 32
        client.unload_model("t")
        assert not _ready(client, "t")
        with pytest.raises(InferenceServerException, match='failed to unload "t"'):
            client.unload_model("t")


def _largest_batch(client: Any, name: str) -> int:
    found = client.get_model_config(name)
    largest = found["max_batch_size"] if isinstance(found, dict) else found.config.max_batch_size
    return int(largest)


def _ready(client: Any, name: str) -> bool:
    """Return whether a model is ready; Triton's gRPC client raises an error for an unknown one."""
    try:
        return bool(client.is_model_ready(name))
    except InferenceServerException:
        return False
