"""Formats of an instance: V1 JSON, V2 binary, V2 JSON and bare bytes, and readers of answers."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from load import answers, generators
from load.answers import Answer, WrongAnswer

Array = NDArray[np.float32]

_TEXT_BYTES = "Inference-Header-Content-Length"


@dataclass(frozen=True)
class Subject:
    """Model of models/ with one input "x" and one output "y", as every peer serves it.

    Attributes:
        name: of the model.
        x: the shape of one instance.
        y: the shape of its answer.
        instance: makes an array of shape `x`, another for each seed.
        expected: maps [1, *x] to [1, *y], computed here.
    """

    name: str
    x: tuple[int, ...]
    y: tuple[int, ...]
    instance: Callable[[int], Array]
    expected: Callable[[Array], Array]

    @property
    def path(self) -> str:
        """Path of its V2 requests."""
        return f"/v2/models/{self.name}/infer"

    @property
    def v1_path(self) -> str:
        """Path of its V1 requests."""
        return f"/v1/models/{self.name}:predict"


@dataclass(frozen=True)
class Format:
    """Format of a request for one instance, with the reader of its answer.

    Attributes:
        name: as it stands in tables and results.
        post: makes the request from an array of shape [1, *x].
        read: makes [1, *y] from an answer; ValueError, KeyError or TypeError where it is none.
    """

    name: str
    post: Callable[[Subject, Array], generators.Post]
    read: Callable[[Subject, Answer], Array]


def post(subject: Subject, form: Format, seed: int) -> generators.Post:
    """Return the request for the instance that `seed` makes."""
    return form.post(subject, subject.instance(seed)[np.newaxis])


def check(subject: Subject, form: Format, seed: int, answer: Answer) -> None:
    """Raise WrongAnswer unless `answer` is the one to `post(subject, form, seed)`."""
    expected = subject.expected(subject.instance(seed)[np.newaxis])
    try:
        found = form.read(subject, answer)
    except (ValueError, KeyError, TypeError) as error:
        raise WrongAnswer(f"no answer in {form.name} ({error!r}): {answer.body[:500]!r}") from None
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=1e-4, atol=1e-5):
        raise WrongAnswer(f"expected {expected.tolist()}, found {found.tolist()}")


def check_one(port: int, subject: Subject, form: Format) -> None:
    """Send one request and check its answer."""
    client = answers.Client(port)
    try:
        check(subject, form, 0, client.ask(post(subject, form, 0)))
    finally:
        client.close()


def check_crowd(
    port: int, subject: Subject, form: Format, clients: int = 32, rounds: int = 4
) -> None:
    """Send different requests at the same time, so that an answer given to another is seen."""

    def ask(client: answers.Client, index: int, turn: int) -> None:
        seed = turn * clients + index
        check(subject, form, seed, client.ask(post(subject, form, seed)))

    answers.lock_step(port, clients, rounds, ask)


def _post_binary(subject: Subject, x: Array) -> generators.Post:
    data = x.astype("<f4").tobytes()
    text = _json(
        {
            "inputs": [_input(x, {"parameters": {"binary_data_size": len(data)}})],
            "outputs": [{"name": "y", "parameters": {"binary_data": True}}],
        }
    )
    headers = {"Content-Type": "application/octet-stream", _TEXT_BYTES: str(len(text))}
    return generators.Post(subject.path, text + data, headers)


def _read_binary(subject: Subject, answer: Answer) -> Array:
    text_bytes = int(answer.headers[_TEXT_BYTES])
    output = _output(answer.body[:text_bytes])
    data = answer.body[text_bytes:]
    size = output["parameters"]["binary_data_size"]
    if size != len(data):
        raise ValueError(f"{size} bytes are declared, {len(data)} came")
    return np.frombuffer(data, "<f4").reshape(output["shape"])


def _post_json(subject: Subject, x: Array) -> generators.Post:
    values = [round(float(value), 3) for value in x.ravel()]
    return generators.Post(subject.path, _json({"inputs": [_input(x, {"data": values})]}))


def _read_json(subject: Subject, answer: Answer) -> Array:
    output = _output(answer.body)
    return np.array(output["data"], np.float32).reshape(output["shape"])


def _post_v1(subject: Subject, x: Array) -> generators.Post:
    (instance,) = x
    values = [round(float(value), 3) for value in instance]
    return generators.Post(subject.v1_path, _json({"instances": [values]}))


def _read_v1(subject: Subject, answer: Answer) -> Array:
    return np.array(json.loads(answer.body)["predictions"], np.float32)


def _read_v1_bare(subject: Subject, answer: Answer) -> Array:
    return np.array(json.loads(answer.body), np.float32)


def _post_raw(subject: Subject, x: Array) -> generators.Post:
    headers = {"Content-Type": "application/octet-stream"}
    return generators.Post(subject.path, x.astype("<f4").tobytes(), headers)


def _read_raw(subject: Subject, answer: Answer) -> Array:
    return np.frombuffer(answer.body, "<f4").reshape(1, *subject.y)


def _input(x: Array, rest: dict[str, Any]) -> dict[str, Any]:
    return {"name": "x", "shape": list(x.shape), "datatype": "FP32", **rest}


def _output(text: bytes) -> Any:
    (output,) = json.loads(text)["outputs"]
    if (output["name"], output["datatype"]) != ("y", "FP32"):
        raise ValueError(f"the output is {output['name']}, {output['datatype']}")
    return output


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _image(seed: int) -> Array:
    return np.random.RandomState(seed).random_sample((3, 224, 224)).astype(np.float32)


MATMUL16 = Subject(
    "matmul16",
    (16,),
    (10,),
    lambda seed: np.array(answers.matmul16_instance(seed), np.float32),
    lambda x: x @ answers.MATMUL16_W,
)
NULL = Subject("null", (1,), (1,), lambda seed: np.full(1, seed, np.float32), lambda x: x)
MATMUL784_W = np.random.RandomState(784).standard_normal((784, 10)).astype(np.float32)
MATMUL784 = Subject(
    "matmul784",
    (784,),
    (10,),
    lambda seed: np.random.RandomState(seed).uniform(0, 1, 784).round(3).astype(np.float32),
    lambda x: x @ MATMUL784_W,
)
AFFINE = Subject("affine", (1,), (1,), NULL.instance, lambda x: 2 * x)
IMAGE = Subject("image", (3, 224, 224), (3,), _image, lambda x: x[:, :, 112, 112])

V2_BINARY = Format("V2 binary", _post_binary, _read_binary)
"""JSON text and the tensor's bytes behind it, in both directions."""

V2_JSON = Format("V2 JSON", _post_json, _read_json)
"""Values as a flat list with three digits, which is all that instances of matmul16 have."""

V1_JSON = Format("V1 JSON", _post_v1, _read_v1)

V1_BARE = Format("V1 JSON, answered by a bare list", _post_v1, _read_v1_bare)
"""Format of peers that wrap no answer into an object."""

RAW = Format("raw", _post_raw, _read_raw)
"""The tensor's bytes and nothing else, for peers that do not speak V2."""
