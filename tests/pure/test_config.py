"""Configurations that are accepted: defaults, spellings, what is concluded from what is given."""

import dataclasses
from pathlib import Path

import pytest
from config_documents import BASE, concluded, model, problems, server

from ringbatch.engine.config import document as configuration
from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.document import (
    Config,
    ConfigError,
    ModelConfig,
    ServerConfig,
    bundled,
    conclude,
    load,
)
from ringbatch.engine.config.model_names import is_model_name


def test_a_model_with_a_path_takes_every_default() -> None:
    assert concluded('[models.mnist]\npath = "model.py"') == Config(
        server=ServerConfig(),
        models=(ModelConfig(name="mnist", runtime="python", path=BASE / "model.py"),),
    )


def test_in_a_cluster_the_ending_decides_the_loader() -> None:
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


def test_defaults_are_those_of_the_documentation() -> None:
    defaults = {s.key: s.default for s in settings(ServerConfig).values()}
    defaults |= {s.key: s.default for s in settings(ModelConfig).values()}
    del defaults["path"]
    assert defaults == {
        "name": "ringbatch",
        "host": "127.0.0.1",
        "port": 8080,
        "unix_socket": None,
        "unix_socket_mode": "0660",
        "unix_socket_group": None,
        "share_port": False,
        "http2": False,
        "frontends": 2,
        "grpc_port": None,
        "grpc_unix_socket": None,
        "grpc_frontends": 1,
        "grpc_connection_age_s": 300.0,
        "client_lanes": 2,
        "max_request_bytes": None,
        "max_connections": 16384,
        "idle_timeout_s": 75.0,
        "max_in_flight": 1024,
        "lane_bytes": None,
        "shared_memory_prefixes": (),
        "cors_origins": (),
        "fair_shares": True,
        "trusted_proxies": (),
        "account_in_flight": None,
        "account_requests_per_s": None,
        "account_model_s_per_s": None,
        "highest_class": "interactive",
        "compress_answers": False,
        "sidecar": False,
        "pass_through": None,
        "app": None,
        "own_paths": "keys",
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
        "control_tls_certificate": None,
        "control_tls_key": None,
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
        "access_log_slower_than_ms": None,
        "server_timing": False,
        "load_report": False,
        "trace_endpoint": None,
        "trace_sample": 0.01,
        "payload_log": None,
        "payload_log_sample": 1.0,
        "payload_log_mode": "all",
        "payload_log_failures": True,
        "payload_log_body_bytes": 65536,
        "payload_log_headers": (),
        "payload_log_attributes": (),
        "payload_log_source": None,
        "payload_log_ca": None,
        "payload_log_file_bytes": 100 << 20,
        "payload_log_files": 10,
        "default_version": None,
        "runtime": None,
        "max_batch_size": 32,
        "allowed_batch_sizes": (),
        "max_batch_cost": 0.0,
        "max_joining_rows": 0,
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
        "first_part_timeout_s": 0.0,
        "part_gap_timeout_s": 0.0,
        "stream_stall_s": 30.0,
        "max_queue_wait_s": 0.0,
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
        "cuda_graphs": "auto",
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
        cuda_graphs = "off"
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
            cuda_graphs="off",
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
def test_the_ending_of_the_path_decides_the_runtime(name: str, runtime: str) -> None:
    config = concluded(f'[models.m]\npath = "{name}"')
    assert config.models[0].runtime == config.models[0].platform == runtime
    other = "onnx" if runtime == "python" else "python"
    config = concluded(f'[models.m]\npath = "{name}"\nruntime = "{other}"')
    assert config.models[0].platform == other


def test_an_application_is_looked_for_beside_the_document() -> None:
    for text, found in (("api:app", f"{BASE}/api:app"), ("/srv/pkg.api:app", "/srv/pkg.api:app")):
        config = concluded(f'[server]\napp = "{text}"\n[models.m]\npath = "http://h:1"')
        assert config.server.app == found
        assert config.passes_to is None, "what is no model's goes to the application"


def test_a_model_file_that_is_a_link_keeps_its_name_and_its_folder(tmp_path: Path) -> None:
    """Other files lie beside it, and it may lead elsewhere later."""
    (tmp_path / "blob").touch()
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "model.onnx").symlink_to("../blob")
    document = {"models": {"m": {"path": "snapshot/model.onnx"}}}
    (model,) = conclude(document, source="it", base=tmp_path).models
    assert model.path == tmp_path.resolve() / "snapshot" / "model.onnx"
    assert model.platform == "onnx"
    (tmp_path / "blob").unlink()
    with pytest.raises(ConfigError, match="a file that exists"):
        conclude(document, source="it", base=tmp_path)


@pytest.mark.parametrize("path", ["current/model.onnx", "current"])
def test_the_folder_of_a_model_is_that_where_it_lies_now(tmp_path: Path, path: str) -> None:
    """All that lies in it goes together, also after the link to it leads elsewhere."""
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1" / "model.onnx").touch()
    (tmp_path / "current").symlink_to("v1")
    (model,) = conclude({"models": {"m": {"path": path}}}, source="it", base=tmp_path).models
    assert str(model.path) == str(tmp_path.resolve() / path).replace("current", "v1")


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
def test_running_workers_stay_within_the_range(running: int, processes: int) -> None:
    (found,) = concluded(model("workers = [2, 8]\nspares = 1")).models
    assert found.processes_near(running) == processes
    assert (found.processes, found.most_processes) == (3, 9)


def test_settings_of_a_range_have_no_effect_on_a_number() -> None:
    settings_of_ranges = "scale_up_after_s = 1\nscale_down_after_s = 1\ntarget_wait_ms = 5"
    notices = concluded(model(f"workers = 2\n{settings_of_ranges}")).notices
    assert all("workers is one number and not a range" in notice for notice in notices)
    assert len(notices) == 3
    assert not concluded(model(f"workers = [1, 2]\n{settings_of_ranges}")).notices


def test_whole_numbers_of_durations_become_floats() -> None:
    config = concluded(model("timeout_s = 3\nmax_latency_ms = 0"))
    assert isinstance(config.models[0].timeout_s, float)
    assert isinstance(config.models[0].max_latency_ms, float)


def test_a_latency_equal_to_the_timeout_is_legal() -> None:
    config = concluded(model("max_latency_ms = 1000\ntimeout_s = 1"))
    assert config.models[0].max_latency_ms == 1000


@pytest.mark.parametrize("key", ["timeout_s", "timeout"])
def test_a_short_timeout_shortens_a_latency_that_nobody_set(key: str) -> None:
    config = concluded(model(f"{key} = 0.25"))
    assert (config.models[0].timeout_s, config.models[0].max_latency_ms) == (0.25, 250)


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
        f"exists; none is at {BASE / 'keys'}"
    ]


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 128, "...", "-"])
def test_legal_names(name: str) -> None:
    assert is_model_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 129, "a\n", "a:predict"])
def test_illegal_names(name: str) -> None:
    assert not is_model_name(name)


def test_the_bundled_model_is_served_without_any_setting() -> None:
    config = bundled()
    assert config.server == ServerConfig()
    assert [m.name for m in config.models] == ["digits"]
    assert config.models[0].path == configuration.BUNDLED_PATH
