"""Configurations with wrong keys, sections, paths or addresses, or settings that do not fit."""

from collections.abc import Callable

import pytest
from config_documents import model, problems, server

from ringbatch.engine.config.definitions import settings
from ringbatch.engine.config.document import ALIASES, ModelConfig, ServerConfig
from ringbatch.engine.config.unknown_keys import UNITS, is_of_another_server

WRONG: dict[str, tuple[str, str]] = {
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
    "model-key-in-server-in-the-form-of-a-flag": (
        server("max-batch-size = 3"),
        "[server] max-batch-size: unknown key here; max_batch_size belongs in a section "
        "[models.NAME]",
    ),
    "key-in-capitals-in-its-section": (
        server("Port = 3"),
        "[server] Port: unknown key; did you mean port?",
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
    "traces-to-a-port-that-there-is-not": (
        server('control_port = 9\ntrace_endpoint = "http://127.0.0.1:65536"'),
        '[server] trace_endpoint: found "http://127.0.0.1:65536", but it must be the address of an '
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
    "a-key-of-the-control-address-alone": (
        server('control_port = 9\ncontrol_tls_key = "k.pem"'),
        "[server] control_tls_key: is for control_tls_certificate, which is missing",
    ),
    "a-certificate-of-no-control-address": (
        server('control_tls_certificate = "c.pem"\ncontrol_tls_key = "k.pem"'),
        "[server] control_tls_key: is for control_port, which is missing",
    ),
    "limits-of-clients-that-count-as-one": (
        server("fair_shares = false\naccount_in_flight = 3"),
        "[server] account_in_flight: needs fair_shares = true, because without it all clients "
        "count as one",
    ),
    "own-paths-that-no-application-is-beside": (
        server('own_paths = "off"'),
        "[server] own_paths: is for app, which is missing",
    ),
    "origins-of-paths-that-the-application-serves": (
        server('app = "app:app"\nown_paths = "app"\ncors_origins = ["*"]'),
        '[server] cors_origins: is for own_paths = "keys"; with another, the app itself answers '
        "CORS",
    ),
    "tcp-ports-beside-a-unix-socket-in-the-place-of-tcp": (
        server('host = "unix:/a"\ngrpc_port = 1'),
        "[server] grpc_port: is for TCP, and host is a Unix socket; give host an address, and the "
        "path to unix_socket",
    ),
    "two-unix-sockets": (
        server('host = "unix:/a"\nunix_socket = "/b"'),
        "[server] unix_socket: is another Unix socket than that of host; one of them must go",
    ),
    "a-header-with-a-secret-in-the-payload-log": (
        server('payload_log = "l"\npayload_log_headers = ["Authorization"]'),
        "[server] payload_log_headers: authorization may hold a secret, and cannot be kept",
    ),
    "authorities-for-a-payload-log-without-tls": (
        server('payload_log = "http://l"\npayload_log_ca = "c.pem"'),
        "[server] payload_log_ca: is for a payload_log at an address that begins with https:",
    ),
    "an-attribute-that-events-have-of-their-own": (
        server('payload_log = "l"\npayload_log_attributes = ["id=x"]'),
        '[server] payload_log_attributes: found ["id=x"], but it must be a list such as '
        '["namespace=prod"], of names of 1 to 20 lower-case letters and digits that no event has '
        "of its own, and a value each",
    ),
    "a-payload-log-that-is-no-file": (
        server('payload_log = "ftp://l"'),
        '[server] payload_log: found "ftp://l", but it must be the path of a file, or the address '
        "of a server, http://HOST:PORT or https://HOST:PORT, with or without a path",
    ),
    "origins-with-a-path": (
        server('cors_origins = ["https://a.example.com/"]'),
        '[server] cors_origins: found ["https://a.example.com/"], but it must be a list such as '
        '["https://app.example.com"], of origins as browsers write them, or ["*"] for all; an '
        "origin has a scheme, a host in lower case, and a port if it is not the usual one",
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
        "models: found [], but it must be a table, with the header [models.NAME]",
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
        "[models.mnist] path: found [], but it must be the path of a model file, or the "
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
        "(torch), or a directory with a tokenizer.json (text, or generator if it has a "
        "model.py or a generation_config.json); runtime says what runs a file of another ending, "
        "and a model.py can serve whatever Python can load",
    ),
    "path-with-a-nul": (
        '[models.mnist]\npath = "a\\u0000.py"',
        '[models.mnist] path: found "a\\u0000.py", but it must be the path of a model file, or the '
        "address of a model server, http://HOST:PORT or "
        "https://HOST:PORT, or a list of addresses",
    ),
    "name-with-a-space": (
        '[models."a b"]\npath = "m.py"',
        '[models] "a b": found "a b", but a model\'s name must be 1 to 128 letters of ASCII, '
        "digits, dots, dashes or underscores, "
        "and not ., .. or stats, which /v2/models/stats has taken",
    ),
    "name-that-a-path-has-taken": (
        '[models.stats]\npath = "m.py"',
        '[models] stats: found "stats", but a model\'s name must be 1 to 128 letters of ASCII, '
        "digits, dots, dashes or underscores, "
        "and not ., .. or stats, which /v2/models/stats has taken",
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
def test_a_wrong_document_is_named_with_file_key_and_remedy(text: str, problem: str) -> None:
    assert problems(text) == [f"ringbatch.toml: {problem}"]


@pytest.mark.parametrize(("section", "write"), [(ServerConfig, server), (ModelConfig, model)])
def test_a_key_without_its_unit_is_refused_with_the_key_that_has_one(
    section: type[ServerConfig] | type[ModelConfig], write: Callable[[str], str]
) -> None:
    keys = settings(section)
    bare = {key.rpartition("_")[0]: key for key in keys if key.rpartition("_")[2] in UNITS}
    wrong = {
        name: key
        for name, key in bare.items()
        if name not in {*keys, *ALIASES} and not is_of_another_server(name)
    }
    assert len(wrong) > 3
    for name, key in wrong.items():
        assert any(
            line.endswith(f" {name}: unknown key; did you mean {key}?")
            for line in problems(write(f"{name} = 60"))
        ), name
