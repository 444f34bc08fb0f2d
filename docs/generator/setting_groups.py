"""Groups of settings, as a reader searches for them, with an example and related settings each."""

from collections.abc import Sequence
from typing import Final, NamedTuple


class Entry(NamedTuple):
    """One setting of a group.

    Attributes:
        key: the setting.
        example: a value in TOML.
        see: related settings.
        path: the model's path in the example.
        beside: further lines of the example.
    """

    key: str
    example: str
    see: Sequence[str] = ()
    path: str = '"model.py"'
    beside: str = ""


class Group(NamedTuple):
    """Settings that are read together."""

    title: str
    entries: Sequence[Entry]


GROUPS: Final = (
    Group(
        "Name, addresses and ports",
        (
            Entry("name", '"prod"', ("host", "port")),
            Entry("host", '"0.0.0.0"', ("port", "unix_socket", "control_host")),
            Entry("port", "8000", ("host", "grpc_port", "control_port", "share_port")),
            Entry("unix_socket", '"/run/ringbatch/prod.sock"', ("host", "unix_socket_mode")),
            Entry(
                "unix_socket_mode",
                '"0666"',
                ("unix_socket", "unix_socket_group"),
                beside='unix_socket = "/run/ringbatch/prod.sock"',
            ),
            Entry(
                "unix_socket_group",
                '"www-data"',
                ("unix_socket", "unix_socket_mode"),
                beside='unix_socket = "/run/ringbatch/prod.sock"',
            ),
            Entry("share_port", "true", ("port", "frontend_cpus", "cpus")),
        ),
    ),
    Group(
        "HTTP and gRPC frontends",
        (
            Entry("frontends", "4", ("frontend_cpus", "placement", "workers")),
            Entry("http2", "true", ("tls_certificate",)),
            Entry("grpc_port", "8081", ("grpc_unix_socket", "grpc_frontends")),
            Entry("grpc_unix_socket", '"/run/ringbatch/grpc.sock"', ("grpc_port", "unix_socket")),
            Entry("grpc_frontends", "2", ("grpc_port", "frontends"), beside="grpc_port = 8081"),
            Entry(
                "grpc_connection_age_s", "60", ("grpc_port", "drain_s"), beside="grpc_port = 8081"
            ),
            Entry("max_connections", "4096", ("idle_timeout_s", "max_in_flight")),
            Entry("idle_timeout_s", "120", ("max_connections",)),
            Entry("fair_shares", "false", ("trusted_proxies", "api_keys_file")),
            Entry(
                "trusted_proxies",
                '["10.0.0.7", "192.168.0.0/16"]',
                ("fair_shares", "api_keys_file"),
            ),
            Entry("compress_answers", "true", ("max_request_bytes",)),
            Entry("cors_origins", '["https://app.example.com"]', ("model_control", "app")),
        ),
    ),
    Group(
        "Limits and shared memory",
        (
            Entry("max_request_bytes", "1048576", ("lane_bytes",)),
            Entry("max_in_flight", "2048", ("lane_bytes", "timeout_s")),
            Entry("lane_bytes", "67108864", ("max_request_bytes", "max_in_flight")),
            Entry("client_lanes", "4", ("lane_bytes",)),
            Entry("shared_memory_prefixes", '["/myapp_"]', ("client_lanes",)),
            Entry("spare_workers", "8", ("model_control", "workers")),
        ),
    ),
    Group(
        "TLS and API keys",
        (
            Entry(
                "tls_certificate",
                '"server.pem"',
                ("tls_key", "tls_client_ca"),
                beside='tls_key = "server.key"',
            ),
            Entry(
                "tls_key",
                '"server.key"',
                ("tls_certificate",),
                beside='tls_certificate = "server.pem"',
            ),
            Entry(
                "tls_client_ca",
                '"clients.pem"',
                ("tls_certificate", "api_keys_file"),
                beside='tls_certificate = "server.pem"\ntls_key = "server.key"',
            ),
            Entry("api_keys_file", '"api_keys"', ("tls_client_ca", "own_paths")),
        ),
    ),
    Group(
        "Control address",
        (
            Entry(
                "control_host",
                '"10.0.0.7"',
                ("control_port", "api_keys_file"),
                beside="control_port = 9090",
            ),
            Entry("control_port", "9090", ("control_host", "trace_endpoint")),
            Entry(
                "control_tls_certificate",
                '"control.pem"',
                ("control_tls_key", "tls_certificate"),
                beside='control_tls_key = "control.key"\ncontrol_port = 9090',
            ),
            Entry(
                "control_tls_key",
                '"control.key"',
                ("control_tls_certificate", "tls_key"),
                beside='control_tls_certificate = "control.pem"\ncontrol_port = 9090',
            ),
            Entry("agent_check_port", "8082", ("load_report", "stop_delay_s")),
            Entry("model_control", "true", ("spare_workers", "api_keys_file", "cors_origins")),
        ),
    ),
    Group(
        "Routes of your own and other servers",
        (
            Entry("app", '"api:app"', ("own_paths", "cors_origins")),
            Entry("own_paths", '"app"', ("app", "api_keys_file"), beside='app = "api:app"'),
            Entry("pass_through", '"http://127.0.0.1:8501"', ("path", "sidecar")),
            Entry(
                "sidecar",
                "true",
                ("pass_through", "kserve_errors"),
                beside='\n[models.mnist]\npath = "http://127.0.0.1:8501"',
            ),
        ),
    ),
    Group(
        "CPUs of the host",
        (
            Entry("placement", '"auto"', ("frontend_cpus", "cpus", "threads")),
            Entry("frontend_cpus", '"0-3"', ("placement", "cpus")),
        ),
    ),
    Group(
        "Stop and restart",
        (
            Entry("drain_s", "60", ("stop_delay_s", "grpc_connection_age_s")),
            Entry("stop_delay_s", "5", ("drain_s", "agent_check_port")),
            Entry("hang_timeout_s", "5", ("batch_timeout_s", "load_timeout_s")),
        ),
    ),
    Group(
        "Log and traces",
        (
            Entry("log_level", '"warning"', ("log_format", "access_log")),
            Entry("log_format", '"json"', ("log_level", "access_log")),
            Entry("access_log", '"all"', ("access_log_sample", "access_log_slower_than_ms")),
            Entry("access_log_sample", "0.01", ("access_log",), beside='access_log = "all"'),
            Entry("access_log_slower_than_ms", "250", ("access_log", "server_timing")),
            Entry("server_timing", "true", ("load_report", "access_log_slower_than_ms")),
            Entry("load_report", "true", ("agent_check_port", "server_timing")),
            Entry(
                "trace_endpoint",
                '"http://127.0.0.1:4318"',
                ("trace_sample", "control_port"),
                beside="control_port = 9090",
            ),
            Entry(
                "trace_sample",
                "0.1",
                ("trace_endpoint",),
                beside='trace_endpoint = "http://127.0.0.1:4318"\ncontrol_port = 9090',
            ),
        ),
    ),
    Group(
        "Payload log",
        (
            Entry(
                "payload_log",
                '"/var/log/ringbatch/prod.jsonl"',
                ("payload_log_sample", "payload_log_body_bytes", "payload_log_files"),
            ),
            Entry(
                "payload_log_sample",
                "0.01",
                ("payload_log",),
                beside='payload_log = "/var/log/ringbatch/prod.jsonl"',
            ),
            Entry(
                "payload_log_mode",
                '"request"',
                ("payload_log", "payload_log_failures"),
                beside='payload_log = "/var/log/ringbatch/prod.jsonl"',
            ),
            Entry(
                "payload_log_failures",
                "false",
                ("payload_log_mode",),
                beside='payload_log = "/var/log/ringbatch/prod.jsonl"',
            ),
            Entry(
                "payload_log_body_bytes",
                "1024",
                ("payload_log",),
                beside='payload_log = "/var/log/ringbatch/prod.jsonl"',
            ),
            Entry(
                "payload_log_headers",
                '["user-agent"]',
                ("payload_log_attributes",),
                beside='payload_log = "/var/log/ringbatch/prod.jsonl"',
            ),
            Entry(
                "payload_log_attributes",
                '["namespace=prod"]',
                ("payload_log_source",),
                beside='payload_log = "/var/log/ringbatch/prod.jsonl"',
            ),
            Entry(
                "payload_log_source",
                '"https://models.example.com/"',
                ("payload_log",),
                beside='payload_log = "/var/log/ringbatch/prod.jsonl"',
            ),
            Entry(
                "payload_log_ca",
                '"collector.pem"',
                ("payload_log",),
                beside='payload_log = "https://collector.example.com/"',
            ),
            Entry(
                "payload_log_file_bytes",
                "10485760",
                ("payload_log_files",),
                beside='payload_log = "/var/log/ringbatch/prod.jsonl"',
            ),
            Entry(
                "payload_log_files",
                "30",
                ("payload_log_file_bytes",),
                beside='payload_log = "/var/log/ringbatch/prod.jsonl"',
            ),
        ),
    ),
    Group(
        "Model file, runtime and version",
        (
            Entry("path", '"model.onnx"', ("runtime", "default_version"), path=""),
            Entry("runtime", '"sklearn"', ("path",), path='"model.bin"'),
            Entry(
                "default_version",
                '"2"',
                ("path",),
                path="",
                beside='\n[models.mnist.versions.1]\npath = "first.onnx"\n\n'
                '[models.mnist.versions.2]\npath = "second.onnx"',
            ),
            Entry("worker_memory_bytes", "4294967296", ("workers",)),
        ),
    ),
    Group(
        "Batches",
        (
            Entry("max_batch_size", "64", ("policy", "allowed_batch_sizes")),
            Entry(
                "policy",
                '"fixed"',
                ("max_latency_ms", "max_batch_size"),
                beside="max_latency_ms = 5",
            ),
            Entry("max_latency_ms", "5", ("policy", "timeout_s"), beside='policy = "fixed"'),
            Entry("allowed_batch_sizes", "[1, 8, 32]", ("max_batch_size", "warm_up")),
            Entry("max_batch_elements", "4096", ("pad_variable_length", "length_buckets")),
            Entry("max_batch_cost", "1000", ("max_batch_size",)),
        ),
    ),
    Group(
        "Variable lengths and texts",
        (
            Entry("pad_variable_length", "true", ("length_buckets", "padding_values")),
            Entry(
                "length_buckets",
                "[32, 64, 128]",
                ("pad_variable_length", "warm_up_length"),
                beside="pad_variable_length = true",
            ),
            Entry(
                "padding_values",
                '["ids=1"]',
                ("pad_variable_length",),
                beside="pad_variable_length = true",
            ),
            Entry(
                "lengths_input",
                '"lengths"',
                ("pad_variable_length",),
                beside="pad_variable_length = true",
            ),
            Entry(
                "truncate",
                "false",
                ("length_buckets", "max_batch_elements"),
                path='"minilm"',
                beside='runtime = "text"',
            ),
        ),
    ),
    Group(
        "Timeouts",
        (
            Entry("timeout_s", "5", ("batch_timeout_s", "max_latency_ms")),
            Entry("batch_timeout_s", "10", ("timeout_s", "hang_timeout_s")),
            Entry("load_timeout_s", "1800", ("warm_up_s",)),
        ),
    ),
    Group(
        "Warm-up",
        (
            Entry("warm_up", '"try"', ("warm_up_s", "warm_up_file")),
            Entry("warm_up_s", "120", ("warm_up", "load_timeout_s")),
            Entry(
                "warm_up_length", "128", ("length_buckets",), beside="pad_variable_length = true"
            ),
            Entry("warm_up_file", '"samples.json"', ("warm_up",)),
        ),
    ),
    Group(
        "Workers and scaling",
        (
            Entry("workers", "[1, 8]", ("spares", "threads", "target_wait_ms", "ray_workers")),
            Entry("spares", "1", ("workers",)),
            Entry(
                "target_wait_ms", "100", ("workers", "scale_up_after_s"), beside="workers = [1, 8]"
            ),
            Entry(
                "scale_up_after_s",
                "5",
                ("target_wait_ms", "scale_down_after_s"),
                beside="workers = [1, 8]",
            ),
            Entry(
                "scale_down_after_s",
                "300",
                ("scale_up_after_s", "workers"),
                beside="workers = [1, 8]",
            ),
        ),
    ),
    Group(
        "Threads, CPUs and devices",
        (
            Entry("threads", "4", ("workers", "cpus", "placement")),
            Entry(
                "cpus",
                '["0-3", "4-7"]',
                ("threads", "frontend_cpus", "placement"),
                beside="workers = 2",
            ),
            Entry("device", '"cuda:0"', ("devices",), path='"model.onnx"'),
            Entry(
                "devices",
                '["cuda:0", "cuda:1"]',
                ("device", "workers"),
                beside="workers = 2",
                path='"model.onnx"',
            ),
        ),
    ),
    Group(
        "PyTorch and OpenVINO",
        (
            Entry(
                "inputs",
                '["x FP32 [3, 224, 224]"]',
                ("outputs",),
                path='"model.pt"',
                beside='outputs = ["y FP32 [1000]"]',
            ),
            Entry(
                "outputs",
                '["y FP32 [1000]"]',
                ("inputs",),
                path='"model.pt"',
                beside='inputs = ["x FP32 [3, 224, 224]"]',
            ),
            Entry("autocast", '"BF16"', ("channels_last", "device"), path='"model.pt2"'),
            Entry("channels_last", "true", ("autocast",), path='"model.pt2"'),
        ),
    ),
    Group(
        "scikit-learn and trees",
        (
            Entry("columns", '"matrix"', ("answers",), path='"model.skops"'),
            Entry(
                "answers", '["label", "margins"]', ("class_names", "columns"), path='"model.ubj"'
            ),
            Entry("class_names", '["no", "yes"]', ("answers",), path='"model.ubj"'),
            Entry("iterations", "100", ("answers",), path='"model.ubj"'),
            Entry(
                "trusted_types",
                '["sklearn.tree._tree.Tree"]',
                ("trust_pickle",),
                path='"model.skops"',
            ),
            Entry("trust_pickle", "true", ("trusted_types",), path='"model.joblib"'),
        ),
    ),
    Group(
        "Requests and answers of a model",
        (
            Entry("headers", '["x-user"]', ("forward_headers",)),
            Entry("nan_answers", '"refuse"', ("kserve_errors",)),
            Entry("kserve_errors", "true", ("sidecar", "nan_answers")),
        ),
    ),
    Group(
        "Model servers",
        (
            Entry("protocol", '"v2"', ("path", "forward_headers"), path='"http://127.0.0.1:8501"'),
            Entry(
                "forward_headers",
                '["authorization", "x-user"]',
                ("protocol", "headers"),
                path='"http://127.0.0.1:8501"',
            ),
            Entry(
                "retry",
                '"always"',
                ("isolate_errors", "timeout_s"),
                path='["http://10.0.0.1:8501", "http://10.0.0.2:8501"]',
            ),
            Entry("isolate_errors", "true", ("retry",), path='"http://127.0.0.1:8501"'),
            Entry(
                "upstream_ca",
                '"servers.pem"',
                ("upstream_certificate",),
                path='"https://models.example.com"',
            ),
            Entry(
                "upstream_certificate",
                '"client.pem"',
                ("upstream_key", "upstream_ca"),
                path='"https://models.example.com"',
                beside='upstream_key = "client.key"',
            ),
            Entry(
                "upstream_key",
                '"client.key"',
                ("upstream_certificate",),
                path='"https://models.example.com"',
                beside='upstream_certificate = "client.pem"',
            ),
        ),
    ),
    Group(
        "Ray",
        (
            Entry("ray_workers", "[0, 8]", ("workers", "ray_address")),
            Entry("ray_address", '"10.0.0.1:6379"', ("ray_namespace",), beside='runtime = "ray"'),
            Entry(
                "ray_namespace",
                '"prod"',
                ("ray_address", "ray_placement_group"),
                beside='runtime = "ray"',
            ),
            Entry("ray_cpus", "2", ("ray_gpus", "ray_resources"), beside='runtime = "ray"'),
            Entry("ray_gpus", "0.5", ("ray_cpus", "ray_resources"), beside='runtime = "ray"'),
            Entry(
                "ray_resources",
                '["accelerator=1"]',
                ("ray_cpus", "ray_gpus"),
                beside='runtime = "ray"',
            ),
            Entry(
                "ray_scheduling", '"default"', ("ray_placement_group",), beside='runtime = "ray"'
            ),
            Entry(
                "ray_placement_group",
                '"models"',
                ("ray_scheduling", "ray_namespace"),
                beside='runtime = "ray"',
            ),
            Entry("ray_keep_s", "600", ("ray_workers",), beside='runtime = "ray"'),
        ),
    ),
)
