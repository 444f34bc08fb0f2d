"""Groups of the settings of [server]."""

from typing import Final

from generator.setting_groups.group import Entry, Group

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
            Entry("account_in_flight", "100", ("account_requests_per_s", "api_keys_file")),
            Entry("account_requests_per_s", "50.0", ("account_in_flight", "api_keys_file")),
            Entry("account_model_s_per_s", "0.5", ("account_in_flight", "api_keys_file")),
            Entry("highest_class", '"normal"', ("fair_shares", "api_keys_file")),
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
)
