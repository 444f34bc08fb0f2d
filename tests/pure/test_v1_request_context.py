"""Request context from V1 bodies: the context that a model gets, and refusals."""

import json
from dataclasses import replace
from typing import Any

import pytest
from segment_fixture import spec

from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.shm.errors import InvalidRequest
from ringbatch.shm.request_context import as_list
from ringbatch.shm.tensor import Tensor

UNTYPED = replace(spec(0, [], []), words=())
TYPED = replace(spec(0, [Tensor("x", "FP32", [])], [Tensor("y", "FP32", [])]), words=())


def words(**parameters: Any) -> bytes:
    context = {"id": "", "parameters": parameters, "headers": {}}
    return json.dumps(context, separators=(",", ":")).encode()


def payloads(body: str) -> list[bytes]:
    parts, columns = V1Model(UNTYPED).requests.parse(body.encode())
    assert not columns
    return [bytes(payload) for _, payload, _ in parts]


@pytest.mark.parametrize(
    "instances", ['["\\ud800"]', '[{"\\udc00": 6.0}]', "[123456789012345678901234567890]", "[1, 2]"]
)
def test_instances_pass_as_they_were_written(instances: str) -> None:
    assert payloads(f'{{"instances":{instances}}}') == [as_list(words(), instances.encode())]
    same = f'{{"k":[1],"k":{{"a":null}},"instances":{instances}}}'
    assert payloads(same) == [as_list(words(k={"a": None}), instances.encode())]


def test_each_part_has_the_context() -> None:
    cap = UNTYPED.cap
    context = payloads(json.dumps({"instances": [7] * (cap + 1), "k": "é"}))
    assert [json.loads(part) for part in context] == [
        [json.loads(words(k="é")), *[7] * cap],
        [json.loads(words(k="é")), 7],
    ]


@pytest.mark.parametrize(
    ("member", "why"),
    [('"k":"\\ud800"', "surrogate"), ('"\\ud800":1', "surrogate"), (f'"k":{1 << 64}', "64 bits")],
)
def test_a_parameter_that_cannot_be_passed_on_is_refused(member: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=f"cannot be passed on: .*{why}"):
        payloads(f'{{"instances":[1],{member}}}')


@pytest.mark.parametrize("model", [UNTYPED, TYPED])
@pytest.mark.parametrize("body", ["[1]", "{", '{"instances":[]}', '{"instances":[1],"k":1e400}'])
def test_an_unsound_body_is_refused_as_ever(model: Any, body: str) -> None:
    with pytest.raises(InvalidRequest):
        V1Model(model).requests.parse(body.encode())
