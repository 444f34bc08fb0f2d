"""Configurations: what is accepted, and the words for everything that is not."""

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringbatch.engine.config import document as configuration
from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.dimensions import lane_bytes
from ringbatch.engine.config.document import (
    Config,
    ConfigError,
    ModelConfig,
    ServerConfig,
    bundled,
    conclude,
    describe,
    is_model_name,
    load,
    read,
)
from ringbatch.shm.errors import StartupError
from ringbatch.shm.layout import Layout

BASE = Path("/srv")


def concluded(text: str) -> Config:
    return conclude(tomllib.loads(text), source="ringbatch.toml", base=BASE, is_file=lambda _: True)


def problems(text: str, **more: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        conclude(
            tomllib.loads(text),
            source="ringbatch.toml",
            base=BASE,
            **{"is_file": lambda _: True} | more,
        )
    return list(caught.value.problems)


def model(line: str) -> str:
    return f'[models.mnist]\npath = "model.py"\n{line}\n'


def server(line: str) -> str:
    return f"[server]\n{line}\n" + model("")


def test_a_model_with_a_path_takes_every_default() -> None:
    assert concluded('[models.mnist]\npath = "model.py"') == Config(
        server=ServerConfig(),
        models=(ModelConfig(name="mnist", runtime="python", path=BASE / "model.py"),),
    )


def test_in_a_cluster_the_ending_says_what_loads_a_model() -> None:
    found = concluded(
        '[models.m]\npath = "m.onnx"\nruntime = "ray"\ndevice = "cuda:0"\nray_gpus = 0.5\n'
        'ray_resources = ["tpu=1", "disk:nvme=0.25"]'
    ).models[0]
    assert (found.platform, found.loader) == ("ray", "onnx")
    assert found.ray_resources == ("tpu=1", "disk:nvme=0.25")
    # The worker gives up before the supervisor gives it up.
    assert found.hung_after_s > found.batch_limit_s


def test_in_a_cluster_a_file_without_a_known_ending_is_refused() -> None:
    (problem,) = problems('[models.m]\npath = "weights.bin"\nruntime = "ray"')
    assert "a file whose ending says what runs it, .py (python)" in problem


def test_several_addresses_are_one_model() -> None:
    text = '[models.m]\npath = ["http://a:1/p/", "http://b:1/p"]'
    config = concluded(text)
    (found,) = config.models
    assert found.path == "http://a:1/p http://b:1/p"
    assert (found.platform, found.workers, found.retry) == ("http", 8, "safe")
    assert config.passes_to is None
    assert 'path = ["http://a:1/p", "http://b:1/p"]' in describe(config)
    assert concluded(describe(config)) == config
    missing = '[models.m]\npath = "https://a:1"\nupstream_ca = "none.pem"'
    assert problems(missing, is_file=lambda _: False) == [
        'ringbatch.toml: [models.m] upstream_ca: found "none.pem", but it must be a file that '
        "exists"
    ]
    many = [f"http://h:{port}" for port in range(1, 33)]
    assert concluded(f"[models.m]\npath = {many}").models[0].workers == 64
    assert concluded(f"[models.m]\npath = {many}\nworkers = 3").models[0].workers == 3


def test_a_server_over_tls_is_one_that_nothing_is_passed_on_to() -> None:
    config = concluded('[models.m]\npath = "https://a:1"')
    assert (config.models[0].workers, config.passes_to) == (4, None)
    text = '[server]\nsidecar = true\npass_through = "http://a:1"\n'
    assert concluded(text + '[models.m]\npath = "https://a:1"').passes_to == "http://a:1"


def test_defaults_are_those_of_the_documentation() -> None:
    defaults = {s.key: s.default for s in settings(ServerConfig).values()}
    defaults |= {s.key: s.default for s in settings(ModelConfig).values()}
    del defaults["path"]
    assert defaults == {
        "name": "ringbatch",
        "host": "127.0.0.1",
        "port": 8080,
        "share_port": False,
        "http2": False,
        "frontends": 2,
        "grpc_port": None,
        "grpc_frontends": 1,
        "grpc_connection_age_s": 300.0,
        "client_lanes": 2,
        "max_request_bytes": None,
        "max_connections": 16384,
        "idle_timeout_s": 75.0,
        "max_in_flight": 1024,
        "lane_bytes": None,
        "shared_memory_prefixes": (),
        "compress_answers": False,
        "sidecar": False,
        "pass_through": None,
        "app": None,
        "protocol": "v1",
        "forward_headers": ("authorization",),
        "headers": (),
        "isolate_errors": False,
        "ray_address": "auto",
        "ray_namespace": "ringbatch",
        "ray_cpus": 1.0,
        "ray_gpus": 0.0,
        "ray_resources": (),
        "ray_scheduling": "spread",
        "ray_workers": None,
        "ray_placement_group": None,
        "ray_keep_s": 3600.0,
        "retry": "safe",
        "upstream_ca": None,
        "upstream_certificate": None,
        "upstream_key": None,
        "tls_certificate": None,
        "tls_key": None,
        "tls_client_ca": None,
        "api_keys_file": None,
        "control_host": "127.0.0.1",
        "control_port": None,
        "agent_check_port": None,
        "placement": "shared",
        "frontend_cpus": None,
        "spare_workers": None,
        "model_control": False,
        "drain_s": 30.0,
        "stop_delay_s": 0.0,
        "hang_timeout_s": 2,
        "log_level": "info",
        "log_format": "text",
        "access_log": "failures",
        "access_log_sample": 1.0,
        "access_log_slower_than_ms": 0.0,
        "server_timing": False,
        "load_report": False,
        "trace_endpoint": None,
        "trace_sample": 0.01,
        "default_version": None,
        "runtime": None,
        "max_batch_size": 32,
        "allowed_batch_sizes": (),
        "max_batch_cost": 0.0,
        "max_batch_elements": 0,
        "pad_variable_length": False,
        "length_buckets": (),
        "padding_values": (),
        "lengths_input": None,
        "load_timeout_s": 600.0,
        "warm_up": "required",
        "warm_up_s": 30.0,
        "warm_up_length": 16,
        "warm_up_file": None,
        "nan_answers": "serve",
        "worker_memory_bytes": None,
        "max_latency_ms": 500.0,
        "timeout_s": 60.0,
        "batch_timeout_s": None,
        "policy": "eager",
        "workers": 1,
        "target_wait_ms": None,
        "scale_up_after_s": 2.0,
        "scale_down_after_s": 60.0,
        "spares": 0,
        "threads": None,
        "device": "cpu",
        "inputs": (),
        "outputs": (),
        "autocast": "off",
        "channels_last": False,
        "columns": "auto",
        "answers": (),
        "iterations": 0,
        "class_names": (),
        "truncate": True,
        "devices": (),
        "cpus": (),
        "trusted_types": (),
        "trust_pickle": False,
        "kserve_errors": False,
    }


@pytest.mark.parametrize("section", [ServerConfig, ModelConfig])
def test_every_default_is_legal(section: type[ServerConfig] | type[ModelConfig]) -> None:
    for setting in settings(section).values():
        if setting.default not in (None, dataclasses.MISSING):
            assert setting.kind.accepts(setting.default), setting.key
            assert setting.kind.store(setting.default) == setting.default, setting.key


def test_every_key_can_be_set() -> None:
    config = concluded(
        """
        [server]
        host = "0.0.0.0"
        port = 0
        frontends = 4
        max_request_bytes = 1048576
        max_in_flight = 64
        lane_bytes = 2097152
        shared_memory_prefixes = ["/app_", "b"]
        drain_s = 1.5
        hang_timeout_s = 5
        log_level = "debug"
        log_format = "json"
        access_log = "all"
        access_log_sample = 0.01
        access_log_slower_than_ms = 250
        server_timing = true
        load_report = true
        control_port = 9090
        agent_check_port = 9091
        trace_endpoint = "https://traces.example:4318/otlp"
        trace_sample = 0.5
        [models.a]
        runtime = "python"
        path = "/models/a.py"
        max_batch_size = 8
        max_latency_ms = 2.5
        timeout_s = 5
        policy = "fixed"
        workers = 3
        threads = 2
        kserve_errors = true
        [models."b.1"]
        path = "sub/../b.py"
        [models.c]
        path = "c.onnx"
        device = "cuda:1"
        [models.d]
        path = "d.bin"
        runtime = "sklearn"
        trusted_types = ["sklearn.tree._tree.Tree"]
        trust_pickle = true
        [models.e]
        path = "e.pt"
        device = "cuda:0"
        inputs = ["x FP32 [3, -1]", "n INT64 []"]
        outputs = ["y FP32 [2]"]
        autocast = "BF16"
        channels_last = true
        """
    )
    assert config.server == ServerConfig(
        host="0.0.0.0",
        port=0,
        frontends=4,
        max_request_bytes=1 << 20,
        max_in_flight=64,
        lane_bytes=2 << 20,
        shared_memory_prefixes=("/app_", "b"),
        drain_s=1.5,
        hang_timeout_s=5,
        log_level="debug",
        log_format="json",
        access_log="all",
        access_log_sample=0.01,
        access_log_slower_than_ms=250.0,
        server_timing=True,
        load_report=True,
        control_port=9090,
        agent_check_port=9091,
        trace_endpoint="https://traces.example:4318/otlp",
        trace_sample=0.5,
    )
    assert config.models == (
        ModelConfig(
            name="a",
            runtime="python",
            path=Path("/models/a.py"),
            max_batch_size=8,
            max_latency_ms=2.5,
            timeout_s=5.0,
            policy="fixed",
            workers=3,
            threads=2,
            kserve_errors=True,
        ),
        ModelConfig(name="b.1", runtime="python", path=BASE / "b.py"),
        ModelConfig(name="c", runtime="onnx", path=BASE / "c.onnx", device="cuda:1"),
        ModelConfig(
            name="d",
            runtime="sklearn",
            path=BASE / "d.bin",
            trusted_types=("sklearn.tree._tree.Tree",),
            trust_pickle=True,
        ),
        ModelConfig(
            name="e",
            runtime="torch",
            path=BASE / "e.pt",
            device="cuda:0",
            inputs=("x FP32 [3, -1]", "n INT64 []"),
            outputs=("y FP32 [2]",),
            autocast="BF16",
            channels_last=True,
        ),
    )


@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        ("m.py", "python"),
        ("m.onnx", "onnx"),
        ("m.skops", "sklearn"),
        ("m.pkl", "sklearn"),
        ("m.pt2", "torch"),
        ("m.pt", "torch"),
        ("m.joblib", "sklearn"),
        ("m.ubj", "xgboost"),
        ("m.json", "xgboost"),
        ("m.txt", "lightgbm"),
        ("m.cbm", "catboost"),
        ("m.xml", "openvino"),
    ],
)
def test_the_ending_of_the_path_decides_what_runs_it(name: str, runtime: str) -> None:
    config = concluded(f'[models.m]\npath = "{name}"')
    assert config.models[0].runtime == config.models[0].platform == runtime
    other = "onnx" if runtime == "python" else "python"
    config = concluded(f'[models.m]\npath = "{name}"\nruntime = "{other}"')
    assert config.models[0].platform == other


def test_an_address_is_for_the_runtime_http_which_has_several_workers() -> None:
    text = (
        '[models.m]\npath = "http://h:1/a:predict"\n[models.n]\npath = "http://h:1/"\nworkers = 1'
    )
    config = concluded(text)
    first, second = config.models
    assert (first.path, first.platform, first.workers) == ("http://h:1/a:predict", "http", 4)
    assert (second.path, second.platform, second.workers) == ("http://h:1", "http", 1)
    assert first.batch_limit_s == first.timeout_s < first.hung_after_s
    assert config.passes_to == "http://h:1"


def test_an_application_is_looked_for_beside_the_document() -> None:
    for text, found in (("api:app", f"{BASE}/api:app"), ("/srv/pkg.api:app", "/srv/pkg.api:app")):
        config = concluded(f'[server]\napp = "{text}"\n[models.m]\npath = "http://h:1"')
        assert config.server.app == found
        assert config.passes_to is None, "what is no model's goes to the application"


@pytest.mark.parametrize(
    ("text", "server"),
    [
        ('[models.m]\npath = "m.py"', None),
        ('[models.m]\npath = "http://h:1"\n[models.n]\npath = "m.py"', None),
        ('[models.m]\npath = "http://h:1"\n[models.n]\npath = "http://h:2"', None),
        ('[server]\npass_through = "http://h:3"\n[models.m]\npath = "m.py"', "http://h:3"),
        ('[server]\npass_through = "http://h:3"\n[models.m]\npath = "http://h:1"', "http://h:3"),
    ],
)
def test_what_is_for_nothing_here_goes_to_the_one_server_there_is(
    text: str, server: str | None
) -> None:
    assert concluded(text).passes_to == server


def test_headers_are_passed_on_whatever_their_case() -> None:
    text = '[models.m]\npath = "http://h:1"\nforward_headers = ["X-A", "x-a", "Cookie"]'
    assert concluded(text).models[0].forward_headers == ("x-a", "cookie")


def test_the_ending_is_that_of_the_path_and_not_that_of_a_links_target(tmp_path: Path) -> None:
    (tmp_path / "blob").touch()
    (tmp_path / "model.onnx").symlink_to("blob")
    (model,) = conclude(
        {"models": {"m": {"path": "model.onnx"}}}, source="it", base=tmp_path
    ).models
    assert (Path(model.path).name, model.platform) == ("blob", "onnx")


def test_kserve_spellings_set_the_same_keys() -> None:
    ours = concluded(model("max_batch_size = 5\nmax_latency_ms = 20\ntimeout_s = 3"))
    assert concluded(model("maxBatchSize = 5\nmaxLatency = 20\ntimeout = 3")) == ours
    assert ours.models[0].max_latency_ms == 20.0


@pytest.mark.parametrize(
    ("text", "workers", "fewest", "most", "at_first"),
    [
        ("3", 3, 3, 3, 3),
        ("[3, 3]", 3, 3, 3, 3),
        ("[1, 8]", (1, 8), 1, 8, 1),
        ("[0, 8]", (0, 8), 0, 8, 1),
    ],
)
def test_workers_are_a_number_or_a_range(
    text: str, workers: int | tuple[int, int], fewest: int, most: int, at_first: int
) -> None:
    (found,) = concluded(model(f"workers = {text}")).models
    assert found.workers == workers
    assert (found.fewest_workers, found.most_workers) == (fewest, most)
    assert found.processes == at_first


@pytest.mark.parametrize(("running", "processes"), [(0, 3), (2, 3), (5, 6), (9, 9)])
def test_what_runs_stays_within_the_range(running: int, processes: int) -> None:
    (found,) = concluded(model("workers = [2, 8]\nspares = 1")).models
    assert found.processes_near(running) == processes
    assert (found.processes, found.most_processes) == (3, 9)


def test_what_is_said_of_a_range_has_no_effect_on_a_number() -> None:
    settings_of_ranges = "scale_up_after_s = 1\nscale_down_after_s = 1\ntarget_wait_ms = 5"
    notices = concluded(model(f"workers = 2\n{settings_of_ranges}")).notices
    assert all("workers is one number and not a range" in notice for notice in notices)
    assert len(notices) == 3
    assert not concluded(model(f"workers = [1, 2]\n{settings_of_ranges}")).notices


def test_whole_numbers_of_durations_become_floats() -> None:
    config = concluded(model("timeout_s = 3\nmax_latency_ms = 0"))
    assert isinstance(config.models[0].timeout_s, float)
    assert isinstance(config.models[0].max_latency_ms, float)


PREFIXES = (
    'a list such as ["/myapp_"], of beginnings of 1 to 200 letters, digits, dots, dashes and '
    "underscores each"
)
WHOLE_64 = (
    "but it must be a whole number from 1 to 64, or the fewest and the most, such as [1, 8] or "
    "[0, 8]"
)

WRONG: dict[str, tuple[str, str]] = {
    "text-for-a-number": (
        model('max_batch_size = "many"'),
        '[models.mnist] max_batch_size: found "many", but it must be a whole number from 0 to 4096',
    ),
    "true-is-no-number": (
        model("workers = true"),
        f"[models.mnist] workers: found true, {WHOLE_64}",
    ),
    "a-fraction-is-not-whole": (
        model("workers = 1.0"),
        f"[models.mnist] workers: found 1.0, {WHOLE_64}",
    ),
    "below-the-range": (model("workers = 0"), f"[models.mnist] workers: found 0, {WHOLE_64}"),
    "above-the-range": (model("workers = 65"), f"[models.mnist] workers: found 65, {WHOLE_64}"),
    "a-list": (model("workers = [1]"), f"[models.mnist] workers: found a list, {WHOLE_64}"),
    "a-range-of-three": (
        model("workers = [1, 2, 3]"),
        f"[models.mnist] workers: found a list, {WHOLE_64}",
    ),
    "a-range-beyond-what-there-may-be": (
        model("workers = [1, 65]"),
        f"[models.mnist] workers: found a list, {WHOLE_64}",
    ),
    "a-range-the-wrong-way-round": (
        model("workers = [8, 1]"),
        "[models.mnist] workers: found [8, 1], but the fewest must not be more than the most",
    ),
    "a-range-without-a-worker": (
        model("workers = [0, 0]"),
        "[models.mnist] workers: found [0, 0], but the most must be 1 or more",
    ),
    "a-table": (model("workers = {}"), f"[models.mnist] workers: found a table, {WHOLE_64}"),
    "a-date": (
        model("workers = 2024-01-02"),
        f"[models.mnist] workers: found the date or time 2024-01-02, {WHOLE_64}",
    ),
    "a-number-of-thousands-of-digits": (
        model("workers = 0x" + "f" * 5000),
        f"[models.mnist] workers: found a number beyond 64 bits, {WHOLE_64}",
    ),
    "a-timeout-of-zero": (
        model("timeout_s = 0\nmax_latency_ms = 0"),
        "[models.mnist] timeout_s: found 0, but it must be a number above 0, at most 86400",
    ),
    "an-infinite-timeout": (
        model("timeout_s = inf"),
        "[models.mnist] timeout_s: found inf, but it must be a number above 0, at most 86400",
    ),
    "not-a-number": (
        model("max_latency_ms = nan"),
        "[models.mnist] max_latency_ms: found nan, but it must be a number from 0 to 86400000",
    ),
    "a-prefix-of-everything": (
        server('shared_memory_prefixes = ["/"]'),
        f'[server] shared_memory_prefixes: found ["/"], but it must be {PREFIXES}',
    ),
    "a-prefix-with-a-folder": (
        server('shared_memory_prefixes = ["ok", "/a/b"]'),
        f'[server] shared_memory_prefixes: found ["ok", "/a/b"], but it must be {PREFIXES}',
    ),
    "a-prefix-that-is-no-list": (
        server('shared_memory_prefixes = "/app_"'),
        f'[server] shared_memory_prefixes: found "/app_", but it must be {PREFIXES}',
    ),
    "prefixes-that-are-no-text": (
        server("shared_memory_prefixes = [1]"),
        f"[server] shared_memory_prefixes: found a list, but it must be {PREFIXES}",
    ),
    "long-prefixes": (
        server(f'shared_memory_prefixes = ["{"x" * 201}"]'),
        f"[server] shared_memory_prefixes: found a long list, but it must be {PREFIXES}",
    ),
    "unknown-policy": (
        model('policy = "lazy"'),
        '[models.mnist] policy: found "lazy", but it must be "eager" or "fixed"',
    ),
    "a-switch-that-is-text": (
        model('kserve_errors = "yes"'),
        '[models.mnist] kserve_errors: found "yes", but it must be true or false',
    ),
    "another-runtime": (
        model('runtime = "tensorrt"'),
        '[models.mnist] runtime: found "tensorrt", but it must be "python" or "onnx" or '
        '"sklearn" or "xgboost" or "lightgbm" or "catboost" or "openvino" or "text" or "torch" or '
        '"http" or "ray"',
    ),
    "ray-with-an-address": (
        '[models.mnist]\npath = "http://127.0.0.1:8501"\nruntime = "ray"',
        '[models.mnist] path: found "http://127.0.0.1:8501", but it must be a file for the runtime '
        "ray",
    ),
    "a-cluster-for-python": (
        model('ray_address = "10.0.0.1:6379"'),
        "[models.mnist] ray_address: is for the runtime ray, but this model's is python",
    ),
    "a-device-for-python-in-a-cluster": (
        model('runtime = "ray"\ndevice = "cuda:0"'),
        "[models.mnist] device: is for the runtimes onnx, python, text and torch, but this "
        "model's is ray",
    ),
    "memory-of-an-actor": (
        model('runtime = "ray"\nworker_memory_bytes = 1000000000'),
        "[models.mnist] worker_memory_bytes: is for workers on this host, but this model's are "
        "actors",
    ),
    "the-address-of-rays-client": (
        model('runtime = "ray"\nray_address = "ray://10.0.0.1:10001"'),
        '[models.mnist] ray_address: found "ray://10.0.0.1:10001", but it must be "auto", or '
        "HOST:PORT of a Ray cluster",
    ),
    "cpus-as-another-resource": (
        model('runtime = "ray"\nray_resources = ["CPU=2"]'),
        '[models.mnist] ray_resources: found ["CPU=2"], but it must be a list such as '
        '["accelerator=1"], of names other than CPU and GPU, and a count above 0 each',
    ),
    "nothing-of-a-resource": (
        model('runtime = "ray"\nray_resources = ["tpu=0.0"]'),
        '[models.mnist] ray_resources: found ["tpu=0.0"], but it must be a list such as '
        '["accelerator=1"], of names other than CPU and GPU, and a count above 0 each',
    ),
    "a-runtime-that-is-no-text": (
        model("runtime = false"),
        '[models.mnist] runtime: found false, but it must be "python" or "onnx" or "sklearn" or '
        '"xgboost" or "lightgbm" or "catboost" or "openvino" or "text" or "torch" or "http" or '
        '"ray"',
    ),
    "another-device": (
        '[models.mnist]\npath = "m.onnx"\ndevice = "gpu"',
        '[models.mnist] device: found "gpu", but it must be "cpu", or "cuda:0" with the number of '
        "a device",
    ),
    "headers-for-a-model-file-in-a-cluster": (
        model('runtime = "ray"\nheaders = ["x-tenant"]'),
        "[models.mnist] headers: is for the runtime python, but this model's is ray",
    ),
    "headers-for-sklearn": (
        '[models.mnist]\npath = "m.skops"\nheaders = ["x-tenant"]',
        "[models.mnist] headers: is for the runtime python, but this model's is sklearn",
    ),
    "a-device-for-sklearn": (
        '[models.mnist]\npath = "m.skops"\ndevice = "cuda:0"',
        "[models.mnist] device: is for the runtimes onnx, python, text and torch, but this "
        "model's is sklearn",
    ),
    "channels-last-for-onnx": (
        '[models.mnist]\npath = "m.onnx"\nchannels_last = true',
        "[models.mnist] channels_last: is for the runtime torch, but this model's is onnx",
    ),
    "inputs-without-outputs": (
        '[models.mnist]\npath = "m.pt"\ninputs = ["x FP32 [1]"]',
        "[models.mnist] outputs: is missing; with inputs there must be outputs as well",
    ),
    "outputs-without-inputs": (
        '[models.mnist]\npath = "m.pt"\noutputs = ["x FP32 [1]"]',
        "[models.mnist] inputs: is missing; with outputs there must be inputs as well",
    ),
    "inputs-of-another-form": (
        '[models.mnist]\npath = "m.pt"\ninputs = ["x FP32 3"]\noutputs = ["y FP32 []"]',
        '[models.mnist] inputs: found ["x FP32 3"], but it must be a list such as '
        '["x FP32 [3, 224, 224]"], of a name, a datatype and the sizes of one instance each; '
        "-1 is any size",
    ),
    "answers-for-onnx": (
        '[models.mnist]\npath = "m.onnx"\nanswers = ["margins"]',
        "[models.mnist] answers: is for the runtimes sklearn, xgboost, lightgbm and catboost, "
        "but this model's is onnx",
    ),
    "an-answer-twice": (
        '[models.mnist]\npath = "m.ubj"\nanswers = ["y", "y"]',
        '[models.mnist] answers: found ["y", "y"], but it must be a list such as '
        '["label", "margins"], of y, label, probabilities, margins, contributions',
    ),
    "an-answer-that-there-is-not": (
        '[models.mnist]\npath = "m.ubj"\nanswers = ["scores"]',
        '[models.mnist] answers: found ["scores"], but it must be a list such as '
        '["label", "margins"], of y, label, probabilities, margins, contributions',
    ),
    "a-class-name-twice": (
        '[models.mnist]\npath = "m.ubj"\nclass_names = ["a", "a"]',
        '[models.mnist] class_names: found ["a", "a"], but it must be a list such as '
        '["no", "yes"], of texts that differ',
    ),
    "columns-of-another-kind": (
        '[models.mnist]\npath = "m.ubj"\ncolumns = "x"',
        '[models.mnist] columns: found "x", but it must be "auto" or "named" or "matrix"',
    ),
    "another-autocast": (
        '[models.mnist]\npath = "m.pt"\nautocast = "FP8"',
        '[models.mnist] autocast: found "FP8", but it must be "off" or "BF16" or "FP16"',
    ),
    "a-trusted-pickle-for-onnx": (
        '[models.mnist]\npath = "m.onnx"\ntrust_pickle = true',
        "[models.mnist] trust_pickle: is for the runtimes sklearn and torch, "
        "but this model's is onnx",
    ),
    "trusted-types-for-python": (
        model('trusted_types = ["a.B"]'),
        "[models.mnist] trusted_types: is for the runtime sklearn, but this model's is python",
    ),
    "a-type-with-a-blank": (
        '[models.mnist]\npath = "m.skops"\ntrusted_types = ["a B"]',
        '[models.mnist] trusted_types: found ["a B"], but it must be a list such as '
        '["sklearn.tree._tree.Tree"], of full names of types',
    ),
    "trusted-types-that-are-no-list": (
        '[models.mnist]\npath = "m.skops"\ntrusted_types = "a.B"',
        '[models.mnist] trusted_types: found "a.B", but it must be a list such as '
        '["sklearn.tree._tree.Tree"], of full names of types',
    ),
    "empty-host": (
        server('host = " "'),
        '[server] host: found " ", but it must be an address or a host name, without a port',
    ),
    "host-with-a-port": (
        server('host = "0.0.0.0:8080"'),
        '[server] host: found "0.0.0.0:8080", but it must be an address or a host name, '
        "without a port",
    ),
    "address-without-a-scheme": (
        '[models.mnist]\npath = "localhost:8501"',
        '[models.mnist] path: found "localhost:8501", but it must be http://localhost:8501 for a '
        "model server there",
    ),
    "port-out-of-range": (
        server("port = 65536"),
        "[server] port: found 65536, but it must be a whole number from 0 to 65535",
    ),
    "in-flight-not-a-power-of-two": (
        server("max_in_flight = 1000"),
        "[server] max_in_flight: found 1000, but it must be a power of two up to 16384, "
        "such as 512, 1024 or 2048",
    ),
    "lane-too-small-for-two-requests": (
        server("max_request_bytes = 1000\nlane_bytes = 1999"),
        "[server] lane_bytes: found 1999, but it must be at least twice max_request_bytes, "
        "which is 1000",
    ),
    "lane-too-small-for-the-default": (
        server("lane_bytes = 4096"),
        "[server] lane_bytes: found 4096, but it must be at least twice max_request_bytes, "
        "which is 16777216 by default",
    ),
    "latency-above-the-timeout": (
        model("max_latency_ms = 1001\ntimeout_s = 1"),
        "[models.mnist] max_latency_ms: found 1001 ms, but it must be at most timeout_s, "
        "which is 1 s",
    ),
    "latency-above-the-timeout-in-kserve-spelling": (
        model("maxLatency = 70000"),
        "[models.mnist] maxLatency: found 70000 ms, but it must be at most timeout_s, "
        "which is 60 s by default",
    ),
    "both-spellings": (
        model("max_batch_size = 3\nmaxBatchSize = 4"),
        "[models.mnist] maxBatchSize: means max_batch_size, which is given as well; keep one",
    ),
    "wrong-value-in-kserve-spelling": (
        model("maxBatchSize = -1"),
        "[models.mnist] maxBatchSize: found -1, but it must be a whole number from 0 to 4096",
    ),
    "misspelt-key": (
        model("max_batchsize = 3"),
        "[models.mnist] max_batchsize: unknown key; did you mean max_batch_size?",
    ),
    "misspelt-case": (
        server("Port = 3"),
        "[server] Port: unknown key; did you mean port?",
    ),
    "key-like-no-other": (
        server("zzz = 3"),
        "[server] zzz: unknown key; all that there are stand in `ringbatch serve --help`, as flags",
    ),
    "section-like-no-other": (
        model("") + "[zzz]\n",
        "zzz: unknown key; known are server, models",
    ),
    "section-for-a-model": (
        "[model.mnist]\n" + model(""),
        "model: unknown key; did you mean models?",
    ),
    "key-of-triton": (
        model("max_queue_delay_microseconds = 500"),
        "[models.mnist] max_queue_delay_microseconds: unknown key; what other servers call so is "
        'here max_latency_ms, in milliseconds, under policy = "fixed"',
    ),
    "section-of-triton": (
        model("[models.mnist.dynamic_batching]"),
        "[models.mnist] dynamic_batching: unknown key; what other servers call so is here always "
        "on; policy, max_batch_size and max_latency_ms say how",
    ),
    "key-of-torchserve-that-looks-like-another": (
        model("maxBatchDelay = 100"),
        "[models.mnist] maxBatchDelay: unknown key; what other servers call so is here "
        'max_latency_ms, in milliseconds, under policy = "fixed"',
    ),
    "key-of-litserve-that-looks-like-another": (
        model("batch_timeout = 0.05"),
        "[models.mnist] batch_timeout: unknown key; what other servers call so is here "
        'max_latency_ms, in milliseconds, under policy = "fixed"; '
        "batch_timeout_s bounds one run of a batch",
    ),
    "model-key-in-server": (
        server("maxBatchSize = 3"),
        "[server] maxBatchSize: unknown key here; it belongs in a section [models.NAME]",
    ),
    "server-key-in-model": (
        model("port = 3"),
        "[models.mnist] port: unknown key here; it belongs in a section [server]",
    ),
    "server-key-above-all-sections": (
        "port = 3\n" + model(""),
        "port: unknown key here; it belongs in a section [server]",
    ),
    "misspelt-section": (
        "[servr]\n" + model(""),
        "servr: unknown key; did you mean server?",
    ),
    "metrics-on-the-port-of-http": (
        server("control_port = 8080"),
        "[server] control_port: found 8080, but it must be another than port, which is 8080 "
        "by default",
    ),
    "metrics-on-the-port-of-grpc": (
        server("grpc_port = 81\ncontrol_port = 81"),
        "[server] control_port: found 81, but it must be another than grpc_port, which is 81",
    ),
    "agent-checks-on-the-port-of-http": (
        server("agent_check_port = 8080"),
        "[server] agent_check_port: found 8080, but it must be another than port, which is 8080 "
        "by default",
    ),
    "agent-checks-on-the-port-of-metrics": (
        server("control_port = 82\nagent_check_port = 82"),
        "[server] agent_check_port: found 82, but it must be another than control_port, which is "
        "82",
    ),
    "traces-and-nobody-to-send-them": (
        server('trace_endpoint = "http://127.0.0.1:4318"'),
        "[server] trace_endpoint: needs control_port, because the process there sends the traces",
    ),
    "traces-to-nowhere": (
        server('control_port = 9\ntrace_endpoint = "127.0.0.1:4318"'),
        '[server] trace_endpoint: found "127.0.0.1:4318", but it must be the address of an '
        "OpenTelemetry collector, http://HOST:PORT or https://HOST:PORT",
    ),
    "a-port-to-share-that-nobody-can-know": (
        server("share_port = true\nport = 0"),
        "[server] share_port: needs a port that others can take too, and 0 takes any free one",
    ),
    "a-certificate-without-its-key": (
        server('tls_certificate = "c.pem"'),
        "[server] tls_certificate: is for tls_key, which is missing",
    ),
    "authorities-without-a-certificate": (
        server('tls_client_ca = "a.pem"'),
        "[server] tls_client_ca: is for tls_certificate, which is missing",
    ),
    "a-file-that-is-no-text": (
        server("api_keys_file = 1"),
        "[server] api_keys_file: found 1, but it must be the path of a file",
    ),
    "grpc-on-the-port-of-http": (
        server("grpc_port = 8080"),
        "[server] grpc_port: found 8080, but it must be another than port, which is 8080 "
        "by default",
    ),
    "server-is-no-table": (
        "server = 3\n" + model(""),
        "server: found 3, but it must be a table, with the header [server]",
    ),
    "models-is-no-table": (
        "models = []",
        "models: found a list, but it must be a table, with the header [models.NAME]",
    ),
    "model-is-no-table": (
        '[models]\nmnist = "model.py"',
        '[models] mnist: found "model.py", but it must be a table, with the header [models.mnist]',
    ),
    "no-models": ("", "models: there is no model; add a section [models.NAME] with a path"),
    "empty-models": (
        "[models]",
        "models: there is no model; add a section [models.NAME] with a path",
    ),
    "no-path": (
        "[models.mnist]",
        "[models.mnist] path: is missing; it must be the path of a model file, or the address of a "
        "model server, http://HOST:PORT or "
        "https://HOST:PORT, or a list of addresses",
    ),
    "path-is-another-kind-of-url": (
        '[models.mnist]\npath = "ftp://localhost/model.py"',
        '[models.mnist] path: found "ftp://localhost/model.py", but it must be the path of a '
        "model file, or the address of a model server, http://HOST:PORT or "
        "https://HOST:PORT, or a list of addresses",
    ),
    "path-is-a-url-with-a-query": (
        '[models.mnist]\npath = "http://localhost/m?a=b"',
        '[models.mnist] path: found "http://localhost/m?a=b", but it must be the path of a '
        "model file, or the address of a model server, http://HOST:PORT or "
        "https://HOST:PORT, or a list of addresses",
    ),
    "no-addresses": (
        "[models.mnist]\npath = []",
        "[models.mnist] path: found a list, but it must be the path of a model file, or the "
        "address of a model server, http://HOST:PORT or https://HOST:PORT, or a list of addresses",
    ),
    "addresses-and-a-file": (
        '[models.mnist]\npath = ["http://h:1", "model.py"]',
        '[models.mnist] path: found ["http://h:1", "model.py"], but it must be the path of a model '
        "file, or the address of a model server, http://HOST:PORT or https://HOST:PORT, or a list "
        "of addresses",
    ),
    "an-address-twice": (
        '[models.mnist]\npath = ["http://h:1", "http://g:1", "http://h:1/"]',
        "[models.mnist] path: http://h:1 stands there 2 times",
    ),
    "http-and-https": (
        '[models.mnist]\npath = ["http://h:1", "https://g:1"]',
        "[models.mnist] path: some addresses are http and some https, but one model has one of "
        "them",
    ),
    "addresses-with-different-paths": (
        '[models.mnist]\npath = ["http://h:1/a", "http://g:1"]',
        "[models.mnist] path: addresses of one model must have the same path, but these have /a "
        "and none",
    ),
    "too-many-addresses": (
        f"[models.mnist]\npath = {[f'http://h:{port}' for port in range(1, 34)]}",
        "[models.mnist] path: there are 33 addresses, but at most 32 are possible",
    ),
    "a-key-for-plain-http": (
        '[models.mnist]\npath = "http://h:1"\nupstream_ca = "a.pem"',
        "[models.mnist] upstream_ca: is for https, but the model server is asked over http",
    ),
    "a-certificate-without-a-key": (
        '[models.mnist]\npath = "https://h:1"\nupstream_certificate = "a.pem"',
        "[models.mnist] upstream_certificate: is for upstream_key, which is missing",
    ),
    "sidecar-of-several-servers": (
        '[server]\nsidecar = true\n[models.mnist]\npath = ["http://h:1", "http://g:1"]',
        "[server] sidecar: needs pass_through where the model is on several servers, or on one "
        "over TLS: everything else is passed on there",
    ),
    "file-for-the-runtime-http": (
        '[models.mnist]\npath = "m.py"\nruntime = "http"',
        '[models.mnist] path: found "m.py", but it must be the address of a model server, '
        "http://HOST:PORT, for the runtime http",
    ),
    "address-for-another-runtime": (
        '[models.mnist]\npath = "http://h:1"\nruntime = "onnx"',
        '[models.mnist] path: found "http://h:1", but it must be a file for the runtime onnx',
    ),
    "protocol-of-a-file": (
        model('protocol = "v2"'),
        "[models.mnist] protocol: is for the runtime http, but this model's is python",
    ),
    "forwarded-header-of-one-request": (
        '[models.mnist]\npath = "http://h:1"\nforward_headers = ["Content-Length"]',
        '[models.mnist] forward_headers: found ["Content-Length"], but it must be a list such as '
        '["authorization"], of names of headers that do not say how a request is sent',
    ),
    "sidecar-of-a-file": (
        server("sidecar = true"),
        "[server] sidecar: is for one model of the runtime http with the protocol v1, and no other "
        "beside it",
    ),
    "pass-through-with-a-path": (
        server('pass_through = "http://h:1/a"'),
        '[server] pass_through: found "http://h:1/a", but it must be the address of a server, '
        "http://HOST:PORT",
    ),
    "app-without-a-name": (
        server('app = "api.py"'),
        '[server] app: found "api.py", but it must be the name of a module and of an application '
        'in it, such as "api:app"',
    ),
    "app-and-pass-through": (
        server('app = "api:app"\npass_through = "http://h:1"'),
        "[server] app: takes all paths but those of models; pass_through and sidecar have none "
        "then",
    ),
    "path-that-nothing-runs": (
        '[models.mnist]\npath = "model.h5"',
        '[models.mnist] path: found "model.h5", but it must be a file whose ending says what runs '
        "it, .py (python), .onnx (onnx), .skops or .pkl or .joblib (sklearn), .ubj or .json "
        "(xgboost), .txt (lightgbm), .cbm (catboost), .xml (openvino), .pt2 or .pt or .pth or .ts "
        "(torch), or a directory with a tokenizer.json (text); runtime says it for any other",
    ),
    "path-with-a-nul": (
        '[models.mnist]\npath = "a\\u0000.py"',
        '[models.mnist] path: found "a\\u0000.py", but it must be the path of a model file, or the '
        "address of a model server, http://HOST:PORT or "
        "https://HOST:PORT, or a list of addresses",
    ),
    "name-with-a-space": (
        '[models."a b"]\npath = "m.py"',
        '[models] "a b": found "a b", but a model\'s name must be 1 to 128 letters, digits, dots, '
        "dashes or underscores, and not . or ..",
    ),
    "name-with-a-dot-without-quotes": (
        '[models.v1.2]\npath = "m.py"\n[models.v1]\npath = "m.py"',
        "[models.v1] 2: unknown key; a model whose name has a dot needs quotes, "
        'such as [models."a.b"]',
    ),
    "a-long-value-is-cut": (
        server(f'log_level = "{"x" * 300}"'),
        f'[server] log_level: found "{"x" * 200}"..., but it must be "debug" or "info" or '
        '"warning" or "error"',
    ),
}


@pytest.mark.parametrize(("text", "problem"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_named_with_file_key_and_remedy(text: str, problem: str) -> None:
    assert problems(text) == [f"ringbatch.toml: {problem}"]


def test_every_problem_is_reported_at_once_in_the_order_of_the_file() -> None:
    found = problems(
        """
        prot = 3
        [server]
        port = 70000
        log_level = 3
        [models.a]
        path = 3
        workers = 0
        [models.b]
        max_latency_ms = 9e9
        """
    )
    starts = ["prot", "[server] port", "[server] log_level", "[models.a] path"]
    starts += ["[models.a] workers", "[models.b] max_latency_ms", "[models.b] path"]
    assert [problem.split(": ")[1] for problem in found] == starts


def test_the_text_of_the_error_is_one_line_for_each_problem() -> None:
    error = ConfigError("first", "second")
    assert str(error) == "first\nsecond"
    assert isinstance(error, StartupError)


def test_a_relation_is_not_checked_against_a_value_that_is_wrong_itself() -> None:
    assert len(problems(server('max_request_bytes = "x"\nlane_bytes = 1'))) == 1
    assert len(problems(model("timeout_s = -1"))) == 1


def test_a_latency_equal_to_the_timeout_is_legal() -> None:
    config = concluded(model("max_latency_ms = 1000\ntimeout_s = 1"))
    assert config.models[0].max_latency_ms == 1000


@pytest.mark.parametrize("key", ["timeout_s", "timeout"])
def test_a_short_timeout_shortens_a_latency_that_nobody_set(key: str) -> None:
    config = concluded(model(f"{key} = 0.25"))
    assert (config.models[0].timeout_s, config.models[0].max_latency_ms) == (0.25, 250)


def test_more_workers_in_all_than_the_segment_can_hold_are_refused() -> None:
    text = "".join(f'[models.m{i}]\npath = "m.py"\nworkers = 64\n' for i in range(17))
    assert problems(text) == [
        "ringbatch.toml: models: 1088 workers in all, but at most 1024 are possible"
    ]


def test_a_path_without_a_file_is_refused_with_the_place_looked_at() -> None:
    assert problems(model(""), is_file=lambda _: False) == [
        'ringbatch.toml: [models.mnist] path: found "model.py", but it must be a file that '
        "exists; none is at /srv/model.py"
    ]


def test_a_folder_is_not_a_model_file(tmp_path: Path) -> None:
    (tmp_path / "model.py").mkdir()
    (tmp_path / "ringbatch.toml").write_text(model(""))
    with pytest.raises(ConfigError, match="must be a file that exists"):
        load(tmp_path / "ringbatch.toml")


def test_files_of_the_server_lie_beside_the_document_and_exist() -> None:
    text = server('tls_certificate = "c.pem"\ntls_key = "/k.pem"\napi_keys_file = "sub/../keys"')
    found = concluded(text).server
    assert (found.tls_certificate, found.tls_key) == (BASE / "c.pem", Path("/k.pem"))
    assert found.api_keys_file == BASE / "keys"
    assert problems(text, is_file=lambda path: path.name != "keys") == [
        'ringbatch.toml: [server] api_keys_file: found "sub/../keys", but it must be a file that '
        "exists"
    ]


def test_a_value_from_a_flag_is_named_by_the_flag() -> None:
    origins = {("models", "mnist", "workers"): "--workers", ("models", "mnist"): "--name"}
    assert problems(model("workers = 0"), origins=origins) == [f"--workers: found 0, {WHOLE_64}"]


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 128, "...", "-"])
def test_legal_names(name: str) -> None:
    assert is_model_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 129, "a\n", "a:predict"])
def test_illegal_names(name: str) -> None:
    assert not is_model_name(name)


def test_a_file_is_loaded_with_paths_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").touch()
    (tmp_path / "ringbatch.toml").write_text(model(""))
    assert load(tmp_path / "ringbatch.toml").models[0].path == (tmp_path / "model.py").resolve()


def test_a_path_is_absolute_where_the_file_is_named_relatively(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").touch()
    (tmp_path / "ringbatch.toml").write_text(model(""))
    monkeypatch.chdir(tmp_path)
    assert load(Path("ringbatch.toml")).models[0].path == (tmp_path / "model.py").resolve()


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(ConfigError) as caught:
        read(path)
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"


def test_a_folder_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read(tmp_path)


INVALID = {
    "no-equals-sign": (b"[server]\nport 3", r"not valid TOML: .*\(at line 2, column 6\)"),
    "ends-too-soon": (b"[server]\nport = ", r"not valid TOML: .*\(at line 2, "),
    "open-bracket-at-the-end": (b"[server]\nx = [1,", r"\(at line 2, the end of the document\)"),
    "table-twice": (b"[server]\n[server]\n", r"not valid TOML: .*line 2"),
    "not-utf-8": (b"[server]\nhost = '\xff'", r"not UTF-8 text \(at line 2, column 9\)"),
    "nested-too-deep": (b"x = " + b"[" * 100_000, r"not valid TOML: "),
    "number-too-long": (b"x = " + b"9" * 5000, r"not valid TOML: "),
}


@pytest.mark.parametrize(("data", "words"), INVALID.values(), ids=INVALID)
def test_a_file_that_is_not_toml_is_refused_with_the_place(
    tmp_path: Path, data: bytes, words: str
) -> None:
    path = tmp_path / "ringbatch.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=words) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_the_bundled_model_is_served_without_any_setting() -> None:
    config = bundled()
    assert config.server == ServerConfig()
    assert [m.name for m in config.models] == ["digits"]
    assert config.models[0].path == configuration.BUNDLED_PATH


legal_servers = st.fixed_dictionaries(
    {},
    optional={
        "name": st.from_regex(r"[A-Za-z][A-Za-z0-9_-]{0,39}", fullmatch=True),
        "host": st.sampled_from(["127.0.0.1", "::", "localhost"]),
        "port": st.sampled_from([0, 8080]),
        "frontends": st.integers(1, 256),
        "grpc_port": st.just(0) | st.integers(1, 65535).filter(lambda port: port != 8080),
        "grpc_frontends": st.integers(1, 256),
        "client_lanes": st.integers(0, 64),
        "max_request_bytes": st.integers(1, 1 << 30),
        "max_in_flight": st.integers(0, 14).map(lambda bits: 1 << bits),
        "lane_bytes": st.integers(2 << 30, 1 << 36),
        "drain_s": st.floats(0, 86400),
        "stop_delay_s": st.floats(0, 86400),
        "hang_timeout_s": st.integers(1, 3600),
        "log_level": st.sampled_from(["debug", "info", "warning", "error"]),
        "log_format": st.sampled_from(["text", "json"]),
        "access_log": st.sampled_from(["off", "failures", "all"]),
        "access_log_sample": st.floats(0, 1),
        "access_log_slower_than_ms": st.floats(0, 1e6),
        "server_timing": st.booleans(),
        "load_report": st.booleans(),
        "control_port": st.just(0),
        "agent_check_port": st.just(0),
        "trace_sample": st.floats(0, 1),
    },
)
legal_models = (
    st.fixed_dictionaries(
        {"path": st.sampled_from(["m.py", "/a/b c.py", 'quoted".py', "back\\slash.py", "é.py"])},
        optional={
            "max_batch_size": st.integers(0, 4096),
            "max_latency_ms": st.floats(0, 60_000),
            "timeout_s": st.floats(60, 86400),
            "policy": st.sampled_from(["eager", "fixed"]),
            "workers": st.integers(1, 64),
            "threads": st.integers(1, 1024),
            "kserve_errors": st.booleans(),
        },
    )
    | st.fixed_dictionaries(
        {"path": st.sampled_from(["m.skops", "m.pkl"])},
        optional={
            "trusted_types": st.lists(st.sampled_from(["a.B", "a.b.C"]), max_size=2),
            "trust_pickle": st.booleans(),
        },
    )
    | st.fixed_dictionaries(
        {"path": st.sampled_from(["m.ubj", "m.txt", "m.cbm"])},
        optional={
            "columns": st.sampled_from(["auto", "named", "matrix"]),
            "answers": st.sampled_from([["y"], ["label", "contributions"]]),
            "iterations": st.integers(0, 100),
            "class_names": st.lists(st.sampled_from(["no", "süß"]), unique=True),
        },
    )
    | st.fixed_dictionaries(
        {
            "path": st.just("m.pt"),
            "inputs": st.just(["x FP32 [3, -1]"]),
            "outputs": st.just(["y INT64 []", "z BOOL [1]"]),
        },
        optional={
            "autocast": st.sampled_from(["off", "BF16", "FP16"]),
            "channels_last": st.booleans(),
        },
    )
)
names = st.from_regex(r"[A-Za-z0-9._-]{1,128}", fullmatch=True).filter(is_model_name)
documents = st.fixed_dictionaries(
    {"models": st.dictionaries(names, legal_models, min_size=1, max_size=3)},
    optional={"server": legal_servers},
)


@given(documents)
def test_a_described_configuration_reads_back_as_itself(document: dict[str, Any]) -> None:
    config = conclude(document, source="it", base=BASE, is_file=lambda _: True)
    again = tomllib.loads(describe(config))
    assert conclude(again, source="it", base=BASE, is_file=lambda _: True) == config


@given(documents)
def test_a_legal_configuration_fits_a_segment(document: dict[str, Any]) -> None:
    config = conclude(document, source="it", base=BASE, is_file=lambda _: True)
    Layout(
        lanes=config.server.frontends + config.server.client_lanes,
        slots=config.server.max_in_flight,
        lane_bytes=lane_bytes(config.server),
        workers=sum(m.processes for m in config.models),
        models=len(config.models),
        model_table_bytes=1,
        client_lanes=config.server.client_lanes,
    )


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
keys = st.sampled_from([*settings(ServerConfig), *settings(ModelConfig), "timeout", "x"])
sections = st.dictionaries(keys, values, max_size=4) | values


@given(
    st.dictionaries(st.sampled_from(["server", "x"]), sections, max_size=2),
    st.dictionaries(st.text(max_size=3), sections, max_size=3) | values,
)
def test_any_document_is_concluded_or_refused_in_words(
    document: dict[str, Any], models: object
) -> None:
    found: tuple[str, ...] = ()
    config = None
    try:
        config = conclude(
            document | {"models": models}, source="it", base=BASE, is_file=lambda _: True
        )
    except ConfigError as error:
        found = error.problems
    assert (config is None) == bool(found)
    assert all(problem.startswith("it: ") and "\n" not in problem for problem in found)


VERSIONS = """
[models.m]
maxLatency = 3
workers = 2
default_version = "2"
[models.m.versions.1]
path = "a.py"
[models.m.versions.2]
path = "b.py"
max_latency_ms = 4
[models.m.versions."1.5-rc"]
path = "c.onnx"
device = "cuda:0"
[models.n]
path = "a.py"
"""


def test_a_version_takes_what_it_does_not_say_itself_from_its_model() -> None:
    config = concluded(VERSIONS)
    found = [
        (m.name, m.version, Path(m.path).name, m.max_latency_ms, m.workers) for m in config.models
    ]
    assert found == [
        ("m", "1", "a.py", 3.0, 2),
        ("m", "2", "b.py", 4.0, 2),
        ("m", "1.5-rc", "c.onnx", 3.0, 2),
        ("n", "1", "a.py", 500.0, 1),
    ]
    assert [m.default for m in config.models] == [False, True, False, False]
    again = tomllib.loads(describe(config))
    assert conclude(again, source="it", base=BASE, is_file=lambda _: True) == config


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[models.m]\npath = "a.py"\nworkers = 0\n[models.m.versions.1]\n[models.m.versions.2]',
            f"[models.m] workers: found 0, {WHOLE_64}",
        ),
        (
            '[models.m.versions.1]\npath = "a.py"\nworkers = 0',
            f"[models.m.versions.1] workers: found 0, {WHOLE_64}",
        ),
        (
            "[models.m.versions.1]\nworkers = 1",
            "[models.m.versions.1] path: is missing; it must be the path of a model file, or the "
            "address of a model server, http://HOST:PORT or "
            "https://HOST:PORT, or a list of addresses",
        ),
        (
            '[models.m]\ndefault_version = "3"\n[models.m.versions.1]\npath = "a.py"',
            '[models.m] default_version: found "3", but it must be one of the versions, 1',
        ),
        (
            '[models.m]\npath = "a.py"\ndefault_version = "3"',
            '[models.m] default_version: found "3", but it must be 1, or versions must be given, '
            "each in a section of its own",
        ),
        (
            '[models.m.versions.1]\npath = "a.py"\ndefault_version = "1"',
            "[models.m.versions.1] default_version: is for all versions, in [models.m]",
        ),
        (
            '[models.m.versions."a/b"]\npath = "a.py"',
            '[models.m.versions] "a/b": found "a/b", but a version\'s name must be 1 to 64 '
            "letters, digits, dots, dashes or underscores, and not . or ..",
        ),
        (
            '[models.m]\npath = "a.py"\nversions = {}',
            "[models.m] versions: there is none; add a section with the name of one",
        ),
        (
            '[models.m]\npath = "a.py"\nversions = 3',
            "[models.m] versions: found 3, but it must be a table, with the header "
            "[models.m.versions.VERSION]",
        ),
    ],
)
def test_a_wrong_version_is_named_where_it_is_written(text: str, problem: str) -> None:
    assert problems(text) == [f"ringbatch.toml: {problem}"]
