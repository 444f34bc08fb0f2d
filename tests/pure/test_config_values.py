"""Wrong values in configurations: each is named with its file, its key and what would be right."""

import pytest
from config_documents import WHOLE_64, model, problems, server

from ringbatch.engine.config.document import ConfigError
from ringbatch.shm.errors import StartupError

PREFIXES = (
    'a list such as ["/myapp_"], of beginnings of 1 to 200 letters, digits, dots, dashes and '
    "underscores each"
)

LISTENING = (
    'an address or a host name, without a port or brackets, or "unix:/PATH" with the absolute path '
    "of a Unix socket, of at most 107 bytes"
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
    "a-list": (model("workers = [1]"), f"[models.mnist] workers: found [1], {WHOLE_64}"),
    "a-range-of-three": (
        model("workers = [1, 2, 3]"),
        f"[models.mnist] workers: found [1, 2, 3], {WHOLE_64}",
    ),
    "a-range-beyond-the-limit": (
        model("workers = [1, 65]"),
        f"[models.mnist] workers: found [1, 65], {WHOLE_64}",
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
        f"[server] shared_memory_prefixes: found [1], but it must be {PREFIXES}",
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
        '"sklearn" or "xgboost" or "lightgbm" or "catboost" or "openvino" or "text" or '
        '"generator" or "torch" or "http" or "ray"',
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
        "[models.mnist] device: is for the runtimes generator, onnx, python, text and torch, but "
        "this model's is ray",
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
        '"xgboost" or "lightgbm" or "catboost" or "openvino" or "text" or '
        '"generator" or "torch" or "http" or "ray"',
    ),
    "another-device": (
        '[models.mnist]\npath = "m.onnx"\ndevice = "gpu"',
        '[models.mnist] device: found "gpu", but it must be "cpu", or "cuda:0" with the number of '
        "a device",
    ),
    "headers-for-a-model-file-in-a-cluster": (
        model('runtime = "ray"\nheaders = ["x-tenant"]'),
        "[models.mnist] headers: is for the runtimes generator and python, but this model's is ray",
    ),
    "headers-for-sklearn": (
        '[models.mnist]\npath = "m.skops"\nheaders = ["x-tenant"]',
        "[models.mnist] headers: is for the runtimes generator and python, but this model's "
        "is sklearn",
    ),
    "a-device-for-sklearn": (
        '[models.mnist]\npath = "m.skops"\ndevice = "cuda:0"',
        "[models.mnist] device: is for the runtimes generator, onnx, python, text and torch, but "
        "this model's is sklearn",
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
    "graphs-of-another-kind": (
        '[models.mnist]\npath = "m.pt2"\ncuda_graphs = "on"',
        '[models.mnist] cuda_graphs: found "on", but it must be "auto" or "off" or "required"',
    ),
    "graphs-for-onnx": (
        '[models.mnist]\npath = "m.onnx"\ncuda_graphs = "off"',
        "[models.mnist] cuda_graphs: is for the runtime torch, but this model's is onnx",
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
        f'[server] host: found " ", but it must be {LISTENING}',
    ),
    "host-in-brackets": (
        server('host = "[::1]"'),
        f'[server] host: found "[::1]", but it must be {LISTENING}',
    ),
    "host-with-a-port": (
        server('host = "0.0.0.0:8080"'),
        f'[server] host: found "0.0.0.0:8080", but it must be {LISTENING}',
    ),
    "unix-socket-without-a-root": (
        server('host = "unix:run/prod.sock"'),
        f'[server] host: found "unix:run/prod.sock", but it must be {LISTENING}',
    ),
    "unix-socket-that-is-a-folder": (
        server('unix_socket = "/run/ringbatch/"'),
        '[server] unix_socket: found "/run/ringbatch/", but it must be the absolute path of a Unix '
        "socket, of at most 107 bytes",
    ),
    "unix-socket-with-a-long-path": (
        server(f'grpc_unix_socket = "/{"é" * 54}"'),
        f'[server] grpc_unix_socket: found "/{"é" * 54}", but it must be the absolute path of a '
        "Unix socket, of at most 107 bytes",
    ),
    "mode-in-words": (
        server('unix_socket_mode = "u=rw"'),
        '[server] unix_socket_mode: found "u=rw", but it must be the permissions of a file in '
        'octal digits, such as "0660"',
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
    "first-part-above-the-timeout": (
        model("first_part_timeout_s = 61"),
        "[models.mnist] first_part_timeout_s: found 61 s, but it must be at most timeout_s, "
        "which is 60 s by default",
    ),
    "gap-above-the-timeout": (
        model("part_gap_timeout_s = 2.5\ntimeout = 2"),
        "[models.mnist] part_gap_timeout_s: found 2.5 s, but it must be at most timeout, "
        "which is 2 s",
    ),
    "gap-below-zero": (
        model("part_gap_timeout_s = -1"),
        "[models.mnist] part_gap_timeout_s: found -1, but it must be a number from 0 to 86400",
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


def test_a_value_from_a_flag_is_named_by_the_flag() -> None:
    origins = {("models", "mnist", "workers"): "--workers", ("models", "mnist"): "--name"}
    assert problems(model("workers = 0"), origins=origins) == [f"--workers: found 0, {WHOLE_64}"]
