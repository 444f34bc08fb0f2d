"""V2's inference on Falcon and on the fast lane: both ways give the same answer."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest
from falcon.testing import ASGIConductor
from v2_app_harness import TARGET, Harness, infer, over_falcon, read, with_harness

ONE_TWO = bytes.fromhex("0000803f00000040")
X = b'"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32",'
AS_JSON = b'{"id":"42",' + X + b'"data":[[1.0,2.0]]}]}'
AS_BINARY = (
    b"{" + X + b'"parameters":{"binary_data_size":8}}],"parameters":{"binary_data_output":true}}'
)
CASES: dict[str, tuple[str, bytes, str | None, int]] = {
    "json": (TARGET, AS_JSON, None, 200),
    "binary": (TARGET, AS_BINARY + ONE_TWO, "134", 200),
    "raw": (TARGET, ONE_TWO, "0", 200),
    "query": (TARGET + "?a=b", AS_JSON, None, 200),
    "split": (
        TARGET,
        b'{"inputs":[{"name":"x","shape":[5,2],"datatype":"FP32","data":[1,2,3,4,5,6,7,8,9,0]}]}',
        None,
        200,
    ),
    "two-inputs": (
        "/v2/models/sum/infer",
        b'{"inputs":[{"name":"b","shape":[1,3],"datatype":"INT64","data":[1,2,3]},'
        b'{"name":"a","shape":[1,3],"datatype":"INT64","data":[[4,5,6]]}],'
        b'"outputs":[{"name":"diff"},{"name":"sum","parameters":{"binary_data":true}}]}',
        None,
        200,
    ),
    "no-instances": (
        TARGET,
        b'{"inputs":[{"name":"x","shape":[0,2],"datatype":"FP32","data":[]}]}',
        None,
        200,
    ),
    "large-answer": (
        "/v2/models/long/infer",
        b'{"inputs":[{"name":"s","shape":[2],"datatype":"BYTES","data":["ab","c"]}]}',
        None,
        200,
    ),
    "no-json": (TARGET, b"nope", None, 400),
    "empty": (TARGET, b"", None, 400),
    "header-beyond-the-body": (TARGET, AS_BINARY + ONE_TWO, "143", 400),
    "header-missing": (TARGET, AS_BINARY + ONE_TWO, None, 400),
    "short": (TARGET, AS_BINARY + ONE_TWO[:-1], "134", 400),
    "nan-as-json": (TARGET, AS_JSON.replace(b"1.0", b"-1.0"), None, 400),
    "unknown-model": ("/v2/models/nope/infer", AS_JSON, None, 404),
    "untyped-model": ("/v2/models/untyped/infer", AS_JSON, None, 400),
    "shared-memory": (
        TARGET,
        b"{" + X + b'"parameters":{"shared_memory_region":"r"}}]}',
        None,
        501,
    ),
    "model-not-ready": (
        "/v2/models/loading/infer",
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}]}',
        None,
        503,
    ),
    "too-large": (
        TARGET,
        b'{"inputs":[{"name":"x","shape":[20,2],"datatype":"FP32","data":%b}]}'
        % json.dumps([1] * 40).encode(),
        None,
        413,
    ),
    "timeout": (
        "/v2/models/silent/infer",
        b'{"inputs":[{"name":"x","shape":[1],"datatype":"FP32","data":[1]}],'
        b'"parameters":{"timeout":1}}',
        None,
        504,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_both_ways_give_the_same_answer(case: str) -> None:
    target, body, header, status = CASES[case]

    @with_harness
    async def run(harness: Harness) -> None:
        got = await infer(harness, target, body, header)
        assert got[0] == status, got
        if status != 200:
            assert got[1]["content-type"] == "application/json"
            (text,) = json.loads(got[2]).values()
            assert list(json.loads(got[2])) == ["error"]
            assert text
            assert ("retry-after" in got[1]) == (status == 503)
        assert ("x-batch-id" in got[1]) == (
            (status == 200 and case != "no-instances") or case == "nan-as-json"
        )

    run()


@with_harness
async def test_the_vectors_of_the_protocol_hold(harness: Harness) -> None:
    text = (
        b'{"model_name":"addone","model_version":"1","outputs":[{"name":"y","datatype":"FP32",'
        b'"shape":[1,2],"parameters":{"binary_data_size":8}}]}'
    )
    for body, header in ((AS_BINARY + ONE_TWO, "134"), (ONE_TWO, "0")):
        status, headers, answer = await infer(harness, TARGET, body, header)
        assert (status, answer) == (200, text + bytes.fromhex("0000004000004040"))
        assert headers["content-type"] == "application/octet-stream"
        assert headers["inference-header-content-length"] == "136"
        assert headers["content-length"] == "144"
    for target in (TARGET, "/v2/models/addone/versions/1/infer"):
        status, headers, answer = await infer(harness, target, AS_JSON, fast=target == TARGET)
        assert (status, headers["content-length"]) == (200, "127")
        assert answer == (
            b'{"id":"42","model_name":"addone","model_version":"1","outputs":[{"name":"y",'
            b'"datatype":"FP32","shape":[1,2],"data":[2.0,3.0]}]}'
        )


@with_harness
async def test_a_split_request_is_joined_in_order(harness: Harness) -> None:
    target, body, header, _ = CASES["split"]
    got = await infer(harness, target, body, header)
    (output,) = json.loads(got[2])["outputs"]
    assert output["shape"] == [5, 2]
    assert output["data"] == [2, 3, 4, 5, 6, 7, 8, 9, 10, 1]


@with_harness
async def test_outputs_come_in_the_order_and_form_they_are_asked_for(harness: Harness) -> None:
    target, body, header, _ = CASES["two-inputs"]
    _, headers, answer = await infer(harness, target, body, header)
    size = int(headers["inference-header-content-length"])
    diff, total = json.loads(answer[:size])["outputs"]
    assert (diff["name"], diff["data"]) == ("diff", [3, 3, 3])
    assert (total["name"], total["parameters"]) == ("sum", {"binary_data_size": 24})
    assert np.frombuffer(answer[size:], "<i8").tolist() == [5, 7, 9]


@pytest.mark.parametrize("header", ["-1", "abc", "+5", "1_2", "1, 2", "9" * 30, "0x5"])
def test_a_header_that_is_no_length_is_refused(header: str) -> None:
    @with_harness
    async def run(harness: Harness) -> None:
        got = await infer(harness, TARGET, AS_JSON, header, fast=False)
        assert got[0] == 400
        assert "Inference-Header-Content-Length" in json.loads(got[2])["error"]

    run()


@pytest.mark.parametrize("version", ["2", "01", "latest", "a" * 5000])
@pytest.mark.parametrize("rest", ["", "/ready", "/stats", "/infer"])
def test_there_is_no_other_version(version: str, rest: str) -> None:
    @with_harness
    async def run(harness: Harness) -> None:
        method = "POST" if rest == "/infer" else "GET"
        target = f"/v2/models/addone/versions/{version}{rest}"
        async with ASGIConductor(harness.app) as conductor:
            got = await conductor.simulate_request(
                method, target, body=AS_JSON if rest == "/infer" else None
            )
        assert got.status_code == 404
        assert 'model "addone" has version "1"' in got.json["error"]
        assert len(got.json["error"]) < 300

    run()


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content-Encoding": "br"}, AS_JSON, 415),
        ({"Content-Length": "4097"}, b"x" * 4097, 413),
        ({"Transfer-Encoding": "chunked"}, AS_JSON, 200),
        ({"Transfer-Encoding": "chunked"}, b"x" * 4097, 413),
        ({"Content-Type": "application/octet-stream"}, AS_JSON, 200),
    ],
)
def test_a_body_is_taken_as_v1_takes_it(headers: Any, body: bytes, status: int) -> None:
    assert read(TARGET, "POST", headers=headers, body=body).status_code == status


def test_a_post_without_any_body_is_asked_for_its_length() -> None:
    assert read(TARGET, "POST").status_code == 411


@with_harness
async def test_every_slot_comes_back(harness: Harness) -> None:
    for case, (target, body, header, _) in CASES.items():
        if case != "timeout":
            await infer(harness, target, body, header)
    assert harness.lane.in_flight == 0


@with_harness
async def test_an_abandoned_request_gets_no_reply(harness: Harness) -> None:
    replies: list[int] = []
    call = harness.service.infer("addone", AS_JSON, None, partial(lambda *_: replies.append(1)))
    assert call is not None
    call.abandon()
    await over_falcon(harness, TARGET, AS_JSON, None)
    assert not replies
    assert harness.lane.in_flight == 0
