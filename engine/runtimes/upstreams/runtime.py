"""The http runtime: a model on other servers, which get whole batches over HTTP.

Over V1 the model's tensors are unknown, and need not be known: instances pass as clients wrote
them. So the server may start later than the engine. Over V2 the server describes the model's
tensors, and must run at the start.

A failure of the server is no failure of one request, so no request is repeated. But if the server
refuses the input, or its answer is unreadable or has not one prediction for each instance, the
batch is halved until the failing request is alone.
"""

import json
import re
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import orjson

from ringbatch.engine.config.addresses import addresses, origin, v1_path
from ringbatch.engine.models.model import InvalidInput, Model, Options, ServerFailed
from ringbatch.engine.runtimes.upstreams.connection import Address, Answer, address_of
from ringbatch.engine.runtimes.upstreams.names import Names
from ringbatch.engine.runtimes.upstreams.pool import Manner, Pool
from ringbatch.engine.runtimes.upstreams.predictions import (
    Miscounted,
    NoPredictions,
    joined,
    shared_out,
    shown,
)
from ringbatch.engine.runtimes.upstreams.tls import tls_context
from ringbatch.engine.runtimes.upstreams.v2_messages import (
    LENGTH_HEADER,
    UnsoundAnswer,
    answered,
    request,
)
from ringbatch.shm.errors import StartupError
from ringbatch.shm.forward_envelope import Envelope, Refusal, refusal_text
from ringbatch.shm.slot import Status
from ringbatch.shm.tensor import ANY, DATATYPES, Tensor

OK: Final = 200
_FIRST_REFUSAL: Final = 400
_FAILED: Final = 500
_ABOUT_THE_INPUT: Final = (400, 413, 422)
"""Statuses about the input: perhaps because of a single request."""
_START_S: Final = 10.0
_JSON: Final = b"Content-Type: application/json\r\n"
_LENGTH: Final = re.compile("[0-9]{1,15}")


def open_http(path: str, options: Options) -> Model:
    """Return a model on the servers at the addresses in `path`.

    See `ringbatch.engine.runtimes.opening.open_model`.
    """
    servers = [_address(url) for url in addresses(path)]
    own = servers[0].path
    if options.protocol == "v1":
        pool = _pool(servers, options, "/" if own else f"/v1/models/{options.name}")
        server = V1Server(pool, options, v1_path(path, options.name))
        return Model((), (), _nothing, server.predict, server, share=pool.share)
    target = own or f"/v2/models/{options.name}"
    pool = _pool(servers, options, f"{target}/ready")
    inputs, outputs = _described(path, pool, target, options.max_batch_size)
    v2 = V2Server(pool, options, target, inputs, outputs)
    return Model(inputs, outputs, _nothing, v2.predict, share=pool.share)


def _address(url: str) -> Address:
    try:
        return address_of(url)
    except ValueError as error:
        raise StartupError(f"{url}: cannot be the address of a model server: {error}") from None


def _pool(servers: Sequence[Address], options: Options, probe: str) -> Pool:
    tls = tls_context(options) if servers[0].scheme == "https" else None
    manner = Manner(options.name, probe, options.retry == "always", tls)
    return Pool(Names(options.name, servers), manner)


def _nothing() -> None:
    """Do nothing, as there is nothing to load."""


class V1Server:
    """A server that takes ``{"instances": [...]}``.

    Args:
        pool: of its servers.
        options: of the model.
        path: of its predictions.
    """

    def __init__(self, pool: Pool, options: Options, path: str) -> None:
        self._pool = pool
        self._timeout_ns = int(options.timeout_s * 1e9)
        self._isolated = _isolated(options)
        self._path = path

    def predictions(
        self, asked: Envelope, lists: Sequence[bytes], rows: Sequence[int], until_ns: int
    ) -> list[bytes]:
        """Return the predictions for each request, as `engine.models.model.Remote` does."""
        body = joined(asked, lists)
        own_ns = time.monotonic_ns() + self._timeout_ns
        headers = asked.headers + _JSON
        try:
            answer = self._pool.post(asked.target, headers, body, min(until_ns, own_ns))
        except ServerFailed as failed:
            raise _named(failed, self._timeout_ns) if own_ns <= until_ns else failed from None
        _expect_ok(answer, self._isolated)
        try:
            return shared_out(answer.body, rows)
        except Miscounted as error:
            raise ServerFailed(Status.SERVER_MISCOUNTED, str(error), isolates=True) from None
        except NoPredictions as error:
            raise ServerFailed(Status.SERVER_BROKEN, str(error), isolates=True) from None

    def predict(self, instances: list[Any]) -> list[Any]:
        """Return the decoded predictions for decoded instances."""
        asked = Envelope(self._path.encode(), b"", b'{"instances":', b"}")
        text = json.dumps(instances, allow_nan=False, separators=(",", ":")).encode()
        until_ns = time.monotonic_ns() + self._timeout_ns
        (answer,) = self.predictions(asked, [text], [len(instances)], until_ns)
        decoded: list[Any] = json.loads(answer, parse_float=orjson.loads)
        return decoded


class V2Server:
    """A server that takes tensors.

    Args:
        pool: of its servers.
        options: of the model.
        path: of the model.
        inputs, outputs: of the model.
    """

    def __init__(
        self,
        pool: Pool,
        options: Options,
        path: str,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
    ) -> None:
        self._pool = pool
        self._timeout_ns = int(options.timeout_s * 1e9)
        self._isolated = _isolated(options)
        self._target = f"{path}/infer".encode()
        self._outputs = outputs
        self._batched = options.max_batch_size > 0
        self._request = partial(request, inputs, binary=options.protocol == "v2")

    def predict(self, *arrays: Any) -> dict[str, Any]:
        """Return the outputs by name for an array of each input.

        Raises:
            ServerFailed: there are none.
            InvalidInput: a value cannot be sent in this protocol.
        """
        try:
            body, json_bytes = self._request(arrays)
        except (UnicodeDecodeError, ValueError) as error:
            raise InvalidInput(f"the model server cannot be sent this: {error}") from None
        headers = _JSON
        if json_bytes < len(body):
            headers = b"Content-Type: application/octet-stream\r\n%b: %d\r\n" % (
                LENGTH_HEADER.encode(),
                json_bytes,
            )
        until_ns = time.monotonic_ns() + self._timeout_ns
        try:
            answer = self._pool.post(self._target, headers, body, until_ns)
        except ServerFailed as failed:
            raise _named(failed, self._timeout_ns) from None
        _expect_ok(answer, self._isolated)
        length = answer.headers.get(LENGTH_HEADER.lower())
        try:
            if length is not None and not _LENGTH.fullmatch(length):
                raise UnsoundAnswer(f"its header {LENGTH_HEADER} is {length[:20]!r}")
            outputs = answered(self._outputs, answer.body, None if length is None else int(length))
        except UnsoundAnswer as error:
            text = f"the model server's answer cannot be read: {error}: {shown(answer.body)}"
            raise ServerFailed(Status.SERVER_BROKEN, text, isolates=True) from None
        if self._batched:
            _expect_rows(outputs, len(arrays[0]))
        return outputs


def _named(failed: ServerFailed, timeout_ns: int) -> ServerFailed:
    """Return a failure; one by timeout names the time limit of a batch."""
    if failed.status is not Status.EXPIRED:
        return failed
    return ServerFailed(failed.status, f"{failed}: batch_timeout_s = {timeout_ns / 1e9:g}")


def _expect_rows(outputs: dict[str, Any], rows: int) -> None:
    for name, array in outputs.items():
        if array.shape[:1] != (rows,):
            raise ServerFailed(
                Status.SERVER_MISCOUNTED,
                f"the model server gave output {name!r} of shape {list(array.shape)} for {rows} "
                "instances",
                isolates=True,
            )


def _isolated(options: Options) -> tuple[int, ...]:
    return (*_ABOUT_THE_INPUT, _FAILED) if options.isolate_errors else _ABOUT_THE_INPUT


def _expect_ok(answer: Answer, isolated: Sequence[int]) -> None:
    """Raise an error for an answer other than 200."""
    status = answer.status
    if status == OK:
        coding = answer.headers.get("content-encoding", "identity")
        if coding.lower() != "identity":
            raise ServerFailed(
                Status.SERVER_BROKEN,
                f"the model server answered with the content encoding {coding[:20]}, unasked",
            )
        return
    if status < _FIRST_REFUSAL:
        text = f"the model server answered {status}, but only 200 is an answer"
        raise ServerFailed(Status.SERVER_BROKEN, text)
    refusal = Refusal(status, answer.retry_after, answer.body.decode(errors="replace"))
    raise ServerFailed(Status.SERVER_ANSWERED, refusal_text(refusal), isolates=status in isolated)


def _described(
    urls: str, pool: Pool, path: str, max_batch_size: int
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the tensors of a model, as its server describes them."""
    where = urls if " " in urls else f"{origin(urls)}{path}"
    try:
        answer = pool.get(path, time.monotonic_ns() + int(_START_S * 1e9))
    except ServerFailed as error:
        raise StartupError(
            f"{urls}: V2 asks at start for the model's tensors, but {error}"
        ) from None
    if answer.status != OK:
        raise StartupError(
            f"{where}: the model server answered {answer.status}: {shown(answer.body)}"
        )
    try:
        document = orjson.loads(answer.body)
        inputs, outputs = (
            tuple(_tensor(where, entry, max_batch_size) for entry in document[key])
            for key in ("inputs", "outputs")
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise StartupError(
            f"{where}: the model server describes no model of V2: {type(error).__name__}: {error}"
        ) from None
    if not inputs or not outputs:
        raise StartupError(f"{where}: the model server describes no inputs or no outputs")
    return inputs, outputs


def _tensor(where: str, entry: dict[str, Any], max_batch_size: int) -> Tensor:
    name, datatype, shape = entry["name"], entry["datatype"], entry["shape"]
    if datatype not in DATATYPES:
        raise StartupError(
            f"{where}: tensor {name!r} is {datatype}; served are {', '.join(DATATYPES)}"
        )
    if max_batch_size:
        if not shape or (shape[0] != ANY and shape[0] < max_batch_size):
            raise StartupError(
                f"{where}: tensor {name!r} has shape {shape}, which has no room for batches of "
                f"{max_batch_size}; set max_batch_size, or 0 to send each request alone"
            )
        shape = shape[1:]
    return Tensor(name, datatype, shape)
