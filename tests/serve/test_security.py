"""TLS, API keys and the control address of a real server."""

import asyncio
import http.client
import ssl
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
import httpx
import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http.aio as triton_http
from dev_shm import takes
from serve.client import (
    Closed,
    Connection,
    Response,
    instances,
    predict_target,
    request,
)
from serve.figures import figures
from serve.grpc_stub import grpc_port
from serve.secure import KEY, OTHER_KEY, Authority, SecureConnection, bearer, write_private
from serve.server import Server, Start
from tiers import exhaustive, first_of
from tritonclient.utils import InferenceServerException

from ringbatch.frontend.security.api_keys import OPEN_PATHS

pytestmark = takes(20)

WaitUntil = Callable[..., Any]

ADD = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [-1])]
outputs = [Tensor("y", "FP32", [-1])]
def predict(x):
    return x + 1
"""
BODY = instances(1)
NO_KEY = "an API key of this server is needed, as Authorization: Bearer KEY or X-API-Key: KEY"
PATHS = {
    "fast": ("POST", predict_target("echo")),
    "falcon": ("POST", "/v1/models/echo%3Apredict"),
    "infer": ("POST", "/v2/models/add/infer"),
    "list": ("GET", "/v1/models"),
    "statistics": ("GET", "/v2/models/stats"),
    "index": ("POST", "/v2/repository/index"),
    "memory": ("GET", "/v2/systemsharedmemory/status"),
    "description": ("GET", "/openapi.json"),
    "page": ("GET", "/docs"),
    "nothing": ("GET", "/nothing/is/here"),
    "health-in-disguise": ("GET", "/v2/health/live/"),
    "health-of-others": ("GET", "/v2/health/../models"),
}

WIDE = """
from ringbatch.engine import Tensor
inputs = [Tensor("x", "FP32", [150_000])]
outputs = [Tensor("y", "FP32", [150_000])]
def predict(x):
    return x + 1
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_private(tmp_path_factory.mktemp("keys") / "keys", f"# of the tests\n{KEY}\n")


@pytest.fixture(scope="module")
def server(
    start_for_module: Start,
    tmp_path_factory: pytest.TempPathFactory,
    authority: Authority,
    keys: Path,
) -> Server:
    certificate, key = authority.certify()
    add = tmp_path_factory.mktemp("models") / "add.py"
    add.write_text(ADD)
    wide = add.with_name("wide.py")
    wide.write_text(WIDE)
    return start_for_module(
        {"echo": {"path": "moody.py"}, "add": {"path": str(add)}, "wide": {"path": str(wide)}},
        max_request_bytes=1 << 20,
        grpc_port=0,
        control_port=0,
        http2=True,
        tls_certificate=str(certificate),
        tls_key=str(key),
        api_keys_file=str(keys),
    )


@pytest.fixture(scope="module", autouse=True)
def silent(server: Server) -> Iterator[Connection]:
    """Never shakes hands; how it ends is looked at by the last test."""
    with Connection(server.port) as made:
        yield made


@pytest.fixture
def connection(server: Server, authority: Authority) -> Iterator[SecureConnection]:
    with SecureConnection(server.port, authority.client_context()) as made:
        yield made


def asked(connection: Connection, case: str, headers: dict[str, str]) -> Response:
    method, target = PATHS[case]
    body = BODY if method == "POST" else None
    return connection.ask(request(target, body, method=method, headers=headers))


@pytest.mark.parametrize("case", PATHS)
def test_no_answer_comes_without_a_key(connection: SecureConnection, case: str) -> None:
    wrong = {"X-API-Key": KEY[:-1]}
    for headers in ({}, bearer(OTHER_KEY), wrong, {"Authorization": KEY}, bearer(f"{KEY},{KEY}")):
        answer = asked(connection, case, headers)
        assert (answer.status, answer.error) == (401, NO_KEY)
        assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert asked(connection, case, bearer()).status != 401


@pytest.mark.parametrize("http2", [False, True])
def test_every_path_that_is_described_needs_a_key_but_those_that_say_so(
    server: Server, authority: Authority, http2: bool
) -> None:
    context, url = authority.client_context(), f"https://localhost:{server.port}"
    with httpx.Client(http1=not http2, http2=http2, verify=context, base_url=url) as client:
        paths = client.get("/openapi.json", headers=bearer()).json()["paths"]
        operations = [
            (method, path, described.get("security") == [])
            for path, methods in paths.items()
            for method, described in methods.items()
            if method in ("get", "post")
        ]
        assert {path for _, path, is_open in operations if is_open} == OPEN_PATHS
        for method, path, is_open in operations:
            answer = client.request(method, path, json={} if method == "post" else None)
            assert (answer.status_code != 401) is is_open, path


def test_a_key_given_twice_is_none(connection: SecureConnection) -> None:
    twice = request(PATHS["fast"][1], BODY, headers=[*bearer().items(), *bearer().items()])
    assert connection.ask(twice).status == 401


def test_a_key_behind_the_body_is_none(connection: SecureConnection) -> None:
    target = predict_target("echo")
    chunks = b"%x\r\n%b\r\n0\r\nX-API-Key: %b\r\n\r\n" % (len(BODY), BODY, KEY.encode())
    data = request(target, chunks, headers={"Transfer-Encoding": "chunked"})
    assert connection.ask(data).status == 401


def test_either_header_will_do_on_the_fast_lane(
    server: Server, connection: SecureConnection
) -> None:
    before = server.status().frontends["handed_over"]
    for headers in (bearer(), {"X-API-Key": KEY}, bearer() | {"X-API-Key": "another's"}):
        for _ in range(3):
            answer = asked(connection, "fast", headers)
            assert (answer.status, answer.json["predictions"]) == (200, [1])
    assert server.status().frontends["handed_over"] == before


@pytest.mark.parametrize("path", ["/", "/v2/health/live", "/v2/health/ready"])
def test_health_is_shown_to_everybody(connection: SecureConnection, path: str) -> None:
    assert connection.ask(request(path, method="GET")).status == 200


def test_the_description_says_that_a_key_is_needed(connection: SecureConnection) -> None:
    described = asked(connection, "description", bearer()).json
    assert described["components"]["securitySchemes"].keys() == {"bearer", "key"}
    assert described["security"] == [{"bearer": []}, {"key": []}]
    paths = described["paths"]
    assert paths["/v2/health/live"]["get"]["security"] == []
    assert "401" in paths["/v1/models/echo:predict"]["post"]["responses"]


def test_large_tensors_come_whole_over_tls(server: Server, connection: SecureConnection) -> None:
    for size in (10, 100_000, 3, 250_000, 100_000):
        x = np.arange(size, dtype=np.float32)
        text = (
            b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,%d],"parameters":'
            b'{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}'
        ) % (size, x.nbytes)
        headers = bearer() | {"Inference-Header-Content-Length": str(len(text))}
        connection.send(request("/v2/models/add/infer", text + x.tobytes(), headers=headers))
        answer = connection.receive()
        assert answer.status == 200, answer.body[:300]
        start = int(answer.headers["inference-header-content-length"])
        assert np.array_equal(np.frombuffer(answer.body[start:], np.float32), x + 1)


@pytest.mark.parametrize("door", ["port", "control_port"])
def test_a_connection_without_tls_is_not_served(server: Server, door: str) -> None:
    with Connection(getattr(server, door)) as plain:
        plain.send(request("/", method="GET"))
        with pytest.raises(Closed):
            plain.receive()


@pytest.mark.parametrize("door", first_of(["http", "grpc", "control"], 1))
def test_hand_shakes_that_fail_are_counted_and_logged(
    start: Start, authority: Authority, door: str, wait_until: WaitUntil
) -> None:
    """Each of its own kind: plain HTTP, a client that does not trust the certificate, and one that
    hangs up amid its words. A port that is only looked at is no failure."""
    certificate, key = authority.certify("failing")
    server = start(
        {"echo": {"path": "moody.py"}},
        grpc_port=0,
        control_port=0,
        tls_certificate=str(certificate),
        tls_key=str(key),
    )
    ports = {"http": server.port, "grpc": grpc_port(server), "control": server.control_port}
    name = "ringbatch_control_tls_failed" if door == "control" else "ringbatch_lane_tls_failed"

    def counted() -> float:
        return sum(n for key, n in samples(server).items() if key[0] == f"{name}_total")

    assert counted() == 0
    with Connection(ports[door]):
        """Nothing is said."""
    with Connection(ports[door]) as plain:
        plain.send(request("/", method="GET"))
        with pytest.raises(Closed):
            plain.receive()
    wait_until(lambda: counted() == 1, "plain HTTP is counted")
    words = "TLS hand-shakes failed: the client spoke plain HTTP (1)"
    wait_until(lambda: words in server.stderr, "its reason is logged")
    with pytest.raises(ssl.SSLCertVerificationError):
        SecureConnection(ports[door], ssl.create_default_context())
    with Connection(ports[door]) as broken:
        broken.send(b"\x16\x03\x01\x02\x00\x01")
    wait_until(lambda: counted() == 3, "the others are counted")
    assert server.stderr.count("TLS hand-shakes failed") == 1, "once in a while"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_before_1_2_is_refused(server: Server, authority: Authority) -> None:
    context = authority.client_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        SecureConnection(server.port, context)


def test_tritons_client_sends_the_key(server: Server, authority: Authority) -> None:
    async def infer(headers: dict[str, str]) -> Any:
        context = authority.client_context()
        async with triton_http.InferenceServerClient(
            f"localhost:{server.port}", ssl=True, ssl_context=context
        ) as client:
            x = triton_http.InferInput("x", [1, 2], "FP32")
            x.set_data_from_numpy(np.ones((1, 2), np.float32))
            answer = await client.infer("add", [x], headers=headers)
            return answer.as_numpy("y").tolist()

    assert asyncio.run(infer(bearer())) == [[2, 2]]
    with pytest.raises(InferenceServerException, match=NO_KEY) as caught:
        asyncio.run(infer({}))
    assert caught.value.status() == "401"


@pytest.fixture
def triton(server: Server, authority: Authority) -> Iterator[Any]:
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
    client = triton_grpc.InferenceServerClient(
        f"localhost:{grpc_port(server)}", ssl=True, creds=credentials
    )
    yield client
    client.close()


def test_grpc_wants_the_key_in_its_metadata(triton: Any) -> None:
    x = triton_grpc.InferInput("x", [1, 2], "FP32")
    x.set_data_from_numpy(np.ones((1, 2), np.float32))
    assert triton.is_server_live()
    for headers in ({"authorization": f"Bearer {KEY}"}, {"x-api-key": KEY}):
        answer = triton.infer("add", [x], headers=headers)
        assert answer.as_numpy("y").tolist() == [[2, 2]]
    for headers in ({}, {"authorization": f"Bearer {OTHER_KEY}"}):
        calls: list[Callable[..., Any]] = [
            partial(triton.infer, "add", [x]),
            partial(triton.get_model_metadata, "add"),
            triton.get_inference_statistics,
        ]
        for call in calls:
            with pytest.raises(InferenceServerException, match=NO_KEY) as caught:
                call(headers=headers)
            assert caught.value.status() == "StatusCode.UNAUTHENTICATED"


def test_large_tensors_over_grpc_are_whole(triton: Any) -> None:
    for number in range(5):
        numbers = np.arange(150_000, dtype=np.float32)[np.newaxis] + number
        x = triton_grpc.InferInput("x", numbers.shape, "FP32")
        x.set_data_from_numpy(numbers)
        answer = triton.infer("wide", [x], headers={"x-api-key": KEY})
        assert np.array_equal(answer.as_numpy("y"), numbers + 1)


def test_a_stream_over_grpc_wants_it_too(server: Server, authority: Authority) -> None:
    credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
    with grpc.secure_channel(f"localhost:{grpc_port(server)}", credentials) as channel:
        for service, method in (
            ("inference.GRPCInferenceService", "ModelStreamInfer"),
            ("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo"),
        ):
            stream = channel.stream_stream(f"/{service}/{method}")(iter([b""]))
            with pytest.raises(grpc.RpcError) as caught:
                next(stream)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def got(server: Server, path: str, **headers: str) -> tuple[int, str, str]:
    """Fetch a path of the control address with any certificate.

    `test_a_new_certificate` checks the certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = server.control_port
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def samples(server: Server) -> dict[tuple[str, ...], float]:
    """Return the metrics by name and label values."""
    status, content_type, text = got(server, "/metrics")
    assert (status, content_type.partition(";")[0]) == (200, "text/plain")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for sample in figures(text)
    }


def test_metrics_count_served_requests_and_stand_at_the_control_address_alone(
    server: Server, connection: SecureConnection
) -> None:
    before = samples(server)
    for _ in range(3):
        assert asked(connection, "fast", bearer()).status == 200
    now = samples(server)
    assert now["ringbatch_model_requests_total", "echo", "1"] == (
        before["ringbatch_model_requests_total", "echo", "1"] + 3
    )
    assert now["ringbatch_model_batch_instances_count", "echo", "1"] == (
        sum(n for key, n in now.items() if key[:2] == ("ringbatch_model_batches_total", "echo"))
    )
    assert now["ringbatch_model_ready_workers", "add", "1"] == 1
    assert now["ringbatch_model_in_flight", "echo", "1"] == 0
    assert now["ringbatch_frontends",] == 2
    assert asked(connection, "nothing", bearer()).status == 404
    assert connection.ask(request("/metrics", method="GET", headers=bearer())).status == 404


def test_metrics_are_there_in_openmetrics_too(server: Server) -> None:
    status, content_type, text = got(
        server, "/metrics", Accept="application/openmetrics-text; version=1.0.0"
    )
    assert (status, content_type.partition(";")[0]) == (200, "application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_the_control_address_says_how_every_model_is(server: Server) -> None:
    status, _, text = got(server, "/v2/health/ready")
    assert status == 200
    assert '"echo":{"ready_workers":1,"workers":1}' in text
    assert got(server, "/v2/health/live")[0] == 200
    assert got(server, "/v2/models")[0] == 404


def test_a_new_certificate_is_shown_once_it_is_there(
    server: Server, authority: Authority, wait_until: WaitUntil
) -> None:
    def shown(port: int) -> bytes:
        with SecureConnection(port, authority.client_context()) as made:
            return made.tls.getpeercert(binary_form=True) or b""

    ports = (server.port, grpc_port(server), server.control_port)
    before = {port: shown(port) for port in ports}
    authority.certify()
    for port in ports:
        wait_until(lambda port=port: shown(port) != before[port], "the new certificate")


class Stream:
    """gRPC call under way that streams requests."""

    def __init__(self, server: Server, authority: Authority) -> None:
        credentials = grpc.ssl_channel_credentials(authority.file.read_bytes())
        self._channel = grpc.secure_channel(f"localhost:{grpc_port(server)}", credentials)
        self._asked: SimpleQueue[bytes | None] = SimpleQueue()
        method = "/inference.GRPCInferenceService/ModelStreamInfer"
        self._call = self._channel.stream_stream(method)(
            iter(self._asked.get, None), metadata=(("x-api-key", KEY),)
        )

    def answers(self) -> bool:
        """Return whether another request is answered with its error; False if the key is gone."""
        self._asked.put(b"")
        try:
            return bool(next(self._call))
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAUTHENTICATED:
                raise
            self._channel.close()
            return False


def test_other_keys_are_in_force_once_they_are_there(
    server: Server,
    authority: Authority,
    connection: SecureConnection,
    keys: Path,
    triton: Any,
    wait_until: WaitUntil,
) -> None:
    stream = Stream(server, authority)
    assert stream.answers()
    assert asked(connection, "fast", bearer()).status == 200
    write_private(keys, "too-short\n")
    wait_until(lambda: "is no API key" in server.stderr, "words on what is wrong")
    assert asked(connection, "fast", bearer()).status == 200
    write_private(keys, f"{OTHER_KEY}\n")
    # The same bytes on the same connection.
    wait_until(lambda: asked(connection, "fast", bearer()).status == 401, "the old key's end")
    assert asked(connection, "fast", bearer(OTHER_KEY)).status == 200

    def is_refused() -> bool:
        try:
            triton.get_model_metadata("add", headers={"x-api-key": KEY})
        except InferenceServerException:
            return True
        return False

    wait_until(is_refused, "the old key's end over gRPC")
    wait_until(lambda: not stream.answers(), "the old key's end on an open stream")
    assert triton.get_model_metadata("add", headers={"x-api-key": OTHER_KEY}).name == "add"
    assert OTHER_KEY not in server.stderr
    assert KEY not in server.stderr


@exhaustive
def test_a_missing_hand_shake_is_not_waited_for(silent: Connection) -> None:
    """The last test, so that the time runs while the others do."""
    assert silent.ended()
