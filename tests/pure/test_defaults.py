"""Inputs that clients may leave out: a request without them is the request with their defaults."""

import json
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from segment_fixture import pack, spec

from ringbatch.engine.runtimes.python import import_model
from ringbatch.engine.worker.samples import made_up, row_of
from ringbatch.frontend.client.arrays import ArrayCodec
from ringbatch.frontend.codec import defaults
from ringbatch.frontend.falcon import openapi_tensors
from ringbatch.frontend.grpc.messages import inference
from ringbatch.frontend.grpc.request import requests_of as grpc_requests
from ringbatch.frontend.v1.request import requests_of as v1_requests
from ringbatch.frontend.v2.documents import model_metadata
from ringbatch.frontend.v2.model_configuration import model_configuration
from ringbatch.frontend.v2.protocol import requests_of as v2_requests
from ringbatch.shm import model_spec
from ringbatch.shm.errors import InvalidRequest, StartupError
from ringbatch.shm.tensor import Tensor

X = Tensor("x", "FP32", [2])
WARM = Tensor("temperature", "FP32", [], default=0.5)
STOP = Tensor("stop", "BYTES", [-1], default=["a", b"\xff"])
INPUTS = (X, STOP, WARM)
MODEL = spec(0, INPUTS, [Tensor("y", "FP32", [2])], max_batch_size=2)
ROWS = np.array([[1, 2], [3, 4], [5, 6]], "<f4")


def expected(rows: int, start: int = 0) -> tuple[int, bytes, int]:
    stops = np.empty((rows, 2), object)
    stops[:] = [b"a", b"\xff"]
    warm = np.full(rows, 0.5, "<f4")
    payload, key_bytes = pack(INPUTS, [ROWS[start : start + rows], stops, warm])
    return rows, payload, key_bytes


def plain(parts: Sequence[Any]) -> list[tuple[int, bytes, int]]:
    return [(rows, bytes(payload), key_bytes) for rows, payload, key_bytes in parts]


@pytest.mark.parametrize(
    "body",
    [
        {"instances": [{"x": row} for row in ROWS.tolist()]},
        {"inputs": {"x": ROWS.tolist()}},
        {"instances": [{"x": row, "temperature": 0.5} for row in ROWS.tolist()]},
        {
            "instances": [
                {"x": [1, 2]},
                {"x": [3, 4], "stop": ["a", {"b64": "/w=="}]},
                {"x": [5, 6]},
            ]
        },
    ],
)
def test_over_v1(body: Any) -> None:
    parts, _ = v1_requests(MODEL).parse(json.dumps(body).encode())
    assert plain(parts) == [expected(2), expected(1, 2)]


FLAGS = [True] * 1024
FLAGGED = spec(0, [Tensor("x", "INT8", []), Tensor("flags", "BOOL", [-1], default=FLAGS)], [X])
FLAGGED_ROWS = 4096
"""Number of rows for which the default takes 4 MiB, and given values 32 MiB."""
FEW = [{"x": 1, "flags": FLAGS}, *[{"x": 1}] * (FLAGGED_ROWS - 1)]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"instances": [{"x": 1}] * FLAGGED_ROWS}, ""),
        ({"inputs": {"x": [1] * FLAGGED_ROWS}}, ""),
        ({"instances": FEW}, ""),
        ({"instances": [*FEW[:-1], {"x": 1, "flags": [*FLAGS[1:], 7]}]}, "4095].* is 7, but"),
        ({"instances": [*FEW[1:], {"x": 1, "flags": [True]}]}, "4095].*shape .1. and instances.0]"),
    ],
)
def test_a_default_does_not_become_values_row_by_row(body: Any, words: str) -> None:
    requests, text = v1_requests(FLAGGED), json.dumps(body).encode()
    tracemalloc.start()
    try:
        if words:
            with pytest.raises(InvalidRequest, match=words):
                requests.parse(text)
        else:
            parts, _ = requests.parse(text)
            assert sum(rows for rows, _, _ in parts) == FLAGGED_ROWS
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 << 20


STOPPED = {"x": [3, 4], "stop": ["bb", "c"]}


@pytest.mark.parametrize("booleans", [False, True])
@pytest.mark.parametrize("given", [[0], [1], [2], [0, 2], [1, 2], [0, 1, 2], []])
def test_only_some_rows_leave_it_out(given: list[int], booleans: bool) -> None:
    more = Tensor("more", "BOOL", [2], default=[True, False])
    wide = Tensor("wide", "FP64", [9], default=[0.5] * 9)
    model = spec(0, [*INPUTS, more, wide], [X], max_batch_size=2)
    whole = {
        "stop": ["a", {"b64": "/w=="}],
        "temperature": 0.5,
        "more": [True, False],
        "wide": [0.5] * 9,
    }
    own = STOPPED | {"temperature": 1, "more": [booleans] * 2, "wide": list(range(9))}
    if not booleans:
        del own["more"]
    rows = [own if row in given else {"x": [1, 2]} for row in range(3)]
    left = v1_requests(model).parse(json.dumps({"instances": rows}).encode())
    full = v1_requests(model).parse(json.dumps({"instances": [whole | r for r in rows]}).encode())
    assert plain(left[0]) == plain(full[0])


@pytest.mark.parametrize("first", [True, False])
def test_a_row_of_another_shape_than_the_default_is_refused(first: bool) -> None:
    rows = [{"x": [1, 2]}, {"x": [3, 4], "stop": ["b"]}]
    body = json.dumps({"instances": rows[::-1] if first else rows}).encode()
    given, left = (0, 1) if first else (1, 0)
    with pytest.raises(InvalidRequest) as refused:
        v1_requests(MODEL).parse(body)
    assert str(refused.value).startswith(
        f'instances[{given}]["stop"] has shape [1] and instances[{left}]["stop"] [2], but the '
        "instances of one request must agree in their shape"
    )


def test_only_rows_that_leave_something_out_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "MOST_BYTES", 7)
    whole = {"x": [1, 2], "temperature": 1, "stop": ["a", "b", "c"]}
    rows = [whole] * 3
    for last in (whole, {name: whole[name] for name in ("x", "stop")}):
        parts, _ = v1_requests(MODEL).parse(json.dumps({"instances": [*rows, last]}).encode())
        assert [rows for rows, _, _ in parts] == [2, 2]


def v2_input(tensor: Tensor, values: Any, shape: Sequence[int]) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype.name, "shape": shape, "data": values}


def test_over_v2() -> None:
    own = v2_input(X, ROWS.reshape(-1).tolist(), [3, 2])
    warm = v2_input(WARM, [0.5] * 3, [3])
    for inputs in ([own], [warm, own]):
        request = v2_requests(MODEL).parse(json.dumps({"inputs": inputs}).encode(), None)
        assert plain(request.parts) == [expected(2), expected(1, 2)]


def test_over_v2_in_binary() -> None:
    own = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}
    text = json.dumps({"inputs": [own]}).encode()
    requests = v2_requests(MODEL)
    for _ in range(2):  # the second time the text may be known
        request = requests.parse(text + ROWS[0].tobytes(), len(text))
        assert plain(request.parts) == [expected(1)]


def test_over_grpc() -> None:
    requests = grpc_requests(MODEL)
    described = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
    for _ in range(2):
        message = inference("ModelInferRequest")(
            inputs=[described], raw_input_contents=[ROWS[0].tobytes()]
        )
        assert plain(requests.read(message).parts) == [expected(1)]
    typed = described | {"contents": {"fp32_contents": [1, 2]}}
    message = inference("ModelInferRequest")(inputs=[typed])
    assert plain(requests.read(message).parts) == [expected(1)]


WIDE = spec(0, [Tensor("x", "INT8", []), Tensor("w", "FP32", [1024], default=[0] * 1024)], [X])
WIDE_ROWS = 1024
"""Number of rows for which the default takes 4 MiB."""


def parse_v2(number: int) -> None:
    size = {"binary_data_size": WIDE_ROWS}
    own = {"name": "x", "datatype": "INT8", "shape": [WIDE_ROWS], "parameters": size}
    text = json.dumps({"inputs": [own], "parameters": {"timeout": 1 + number}}).encode()
    V2_OF_WIDE.parse(text + bytes(WIDE_ROWS), len(text))


def parse_grpc(number: int) -> None:
    message = inference("ModelInferRequest")(
        inputs=[{"name": "x", "datatype": "INT8", "shape": [WIDE_ROWS]}],
        parameters={"timeout": {"int64_param": 1 + number}},
        raw_input_contents=[bytes(WIDE_ROWS)],
    )
    GRPC_OF_WIDE.read(message)


V2_OF_WIDE = v2_requests(WIDE)
GRPC_OF_WIDE = grpc_requests(WIDE)


@pytest.mark.parametrize("parse", [parse_v2, parse_grpc])
def test_remembered_requests_hold_no_default(parse: Callable[[int], None]) -> None:
    parse(0)
    tracemalloc.start()
    try:
        for number in range(1, 5):
            parse(number)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 1 << 20


def test_from_a_client_on_this_host() -> None:
    parts = ArrayCodec(MODEL).parse({"x": ROWS})
    assert plain(parts) == [expected(2), expected(1, 2)]


@pytest.mark.parametrize(
    ("datatype", "default", "bits"),
    [
        ("BOOL", True, b"\1"),
        ("INT8", -1, b"\xff"),
        ("UINT16", 258, b"\2\1"),
        ("FP16", 1, b"\0\x3c"),
        ("BF16", 1, b"\x80\x3f"),
        ("FP64", 0.0, bytes(8)),
        ("BYTES", "é", b"\2\0\0\0\xc3\xa9"),
    ],
)
def test_a_default_of_every_kind_is_as_its_bytes(datatype: str, default: Any, bits: bytes) -> None:
    assert defaults.Default(Tensor("x", datatype, [], default=default)).tensor(2) == bits * 2


def test_an_input_without_a_default_is_still_wanted() -> None:
    with pytest.raises(InvalidRequest, match='lacks "x"'):
        v1_requests(MODEL).parse(b'{"instances": [{"temperature": 1}]}')
    with pytest.raises(InvalidRequest, match='`inputs` lacks "x"'):
        v1_requests(MODEL).parse(b'{"inputs": {"temperature": [1]}}')
    with pytest.raises(InvalidRequest, match='"mood", but model "m" takes'):
        v1_requests(MODEL).parse(b'{"instances": [{"x": [1, 2], "mood": 1}]}')
    with pytest.raises(InvalidRequest, match='lacks input "x"'):
        v2_requests(MODEL).parse(json.dumps({"inputs": [v2_input(WARM, [1], [1])]}).encode(), None)
    with pytest.raises(InvalidRequest, match='lacks input "x"'):
        v2_requests(MODEL).parse(b'{"inputs": []}', None)
    with pytest.raises(InvalidRequest, match='lacks input "x"'):
        ArrayCodec(MODEL).parse({"temperature": np.ones(1, "<f4")})


def test_a_small_request_does_not_become_a_large_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defaults, "MOST_BYTES", 100)
    wide = Tensor("wide", "FP64", [4], default=[0, 0, 0, 0])
    model = spec(0, [X, wide], [X])
    words = r'leaves out input "wide" for 4 instances, which is done for at most 3'
    rows = [{"x": [1, 2]}] * 4
    assert v1_requests(model).parse(json.dumps({"instances": rows[:3]}).encode())
    with pytest.raises(InvalidRequest, match=words):
        v1_requests(model).parse(json.dumps({"instances": rows}).encode())
    with pytest.raises(InvalidRequest, match=words):
        v1_requests(model).parse(json.dumps({"inputs": {"x": [[1, 2]] * 4}}).encode())
    with pytest.raises(InvalidRequest, match=words):
        ArrayCodec(model).parse({"x": np.ones((4, 2), "<f4")})
    empty = spec(0, [Tensor("x", "FP32", [-1]), wide], [X])
    with pytest.raises(InvalidRequest, match="without any element"):
        ArrayCodec(empty).parse({"x": np.ones((1_000_000_000, 0), "<f4")})


@pytest.mark.parametrize(
    ("datatype", "shape", "default", "words"),
    [
        ("FP32", [], "warm", "it has 'warm', which is no finite FP32"),
        ("FP32", [], True, "which is no finite FP32"),
        ("FP32", [], 1e39, "which is no finite FP32"),
        ("FP16", [], 70000, "which is no finite FP16"),
        ("BF16", [], 3.4e38, "which is no finite BF16"),
        ("FP64", [], float("nan"), "which is no finite FP64"),
        ("FP64", [], 10**400, "which is no finite FP64"),
        ("INT8", [], 128, "it has 128, which is no INT8"),
        ("UINT8", [], -1, "it has -1, which is no UINT8"),
        ("INT64", [], 0.5, "it has 0.5, which is no INT64"),
        ("BOOL", [], 1, "it has 1, where true or false is right"),
        ("BYTES", [], 1, "it has 1, where a text is right"),
        ("BYTES", [], "\ud800", "half of a surrogate pair"),
        ("FP32", [2], 1, "it is 1, where a list is right"),
        ("FP32", [2], [1, 2, 3], "it has a list of 3, where one of 2 is right"),
        ("FP32", [-1, -1], [[1], [1, 2]], "its lists are of different lengths"),
    ],
)
def test_a_default_that_does_not_fit_is_refused(
    datatype: str, shape: list[int], default: Any, words: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Tensor("t", datatype, shape, default=default)
    assert str(caught.value).startswith(f"tensor 't': the default does not fit {datatype} {shape}")
    assert words in str(caught.value)


@pytest.mark.parametrize("default", [np.float32(0.5), np.array(0.5), 0.5])
def test_numpys_values_are_taken(default: Any) -> None:
    assert Tensor("t", "FP32", [], default=default).default == 0.5


def model(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.py"
    path.write_text(
        f"from ringbatch.engine import Tensor\n{text}\ndef predict(*a):\n    return a[0]\n"
    )
    import_model(path)


def test_a_default_that_cannot_be_left_out_is_refused_at_start(tmp_path: Path) -> None:
    x, y = 'Tensor("x", "FP32", [])', 'Tensor("y", "FP32", [], default=1)'
    with pytest.raises(StartupError, match="output 'y' has a default, but only inputs can be"):
        model(tmp_path, f"inputs = [{x}]\noutputs = [{y}]")
    with pytest.raises(StartupError, match="every input has a default"):
        model(tmp_path, f"inputs = [{y}]\noutputs = [{x}]")
    with pytest.raises(StartupError, match="line 2: ValueError: tensor 'y': the default does not"):
        model(tmp_path, f"inputs = [{x}, {y.replace('=1', '=[1]')}]\noutputs = [{x}]")


def test_defaults_survive_the_model_table() -> None:
    assert model_spec.loads(model_spec.dumps((MODEL,))) == (MODEL,)


def test_metadata_and_openapi_name_the_inputs_that_may_be_left_out() -> None:
    x, stop, warm = model_metadata(MODEL, ["1"])["inputs"]
    assert "parameters" not in x
    assert stop["parameters"] == {"default": ["a", {"b64": "/w=="}]}
    assert warm["parameters"] == {"default": 0.5}
    optional = [one["optional"] for one in model_configuration(MODEL)["input"]]
    assert optional == [False, True, True]
    request = openapi_tensors.v1_request(MODEL)
    row = request["properties"]["instances"]["items"]
    assert row["required"] == ["x"]
    assert row["properties"]["temperature"]["default"] == 0.5
    assert request["properties"]["inputs"]["anyOf"][1]["required"] == ["x"]
    entries = openapi_tensors.v2_request(MODEL)["properties"]["inputs"]
    assert (entries["minItems"], entries["maxItems"]) == (1, 3)


def test_warm_up_runs_with_defaults() -> None:
    x, stop, warm = made_up(INPUTS, 2, 5)
    assert (x == 1).all()
    assert stop.shape == (2, 5), "an open one has the length that is wanted"
    assert warm.tolist() == [0.5, 0.5]
    found = [row_of(Path("f"), tensor, INPUTS, {"x": [1, 2]}) for tensor in INPUTS]
    assert found[1].tolist() == [[b"a", b"\xff"]]
    assert found[2].tolist() == [0.5]
