"""Groups of the settings of a model."""

from typing import Final

from generator.setting_groups.group import Entry, Group

GROUPS: Final = (
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
            Entry("max_joining_rows", "4", ("max_batch_size",)),
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
            Entry("first_part_timeout_s", "5", ("timeout_s", "part_gap_timeout_s")),
            Entry("part_gap_timeout_s", "2", ("timeout_s", "first_part_timeout_s")),
            Entry("stream_stall_s", "10", ("timeout_s",)),
            Entry("max_queue_wait_s", "2", ("timeout_s",)),
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
            Entry(
                "cuda_graphs",
                '"required"',
                ("allowed_batch_sizes", "device"),
                path='"model.pt2"',
                beside='device = "cuda:0"',
            ),
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
