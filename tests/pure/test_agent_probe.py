"""``SERVING_READINESS_PROBE``, as KServe writes it for its agent."""

import pytest

from ringbatch.frontend.proxy.agent_probe import VARIABLE, Question, question

HTTP = '{"httpGet":{"path":"/healthz","port":8080,"scheme":"HTTP"},"timeoutSeconds":1}'


@pytest.mark.parametrize(
    ("probe", "asked"),
    [
        (HTTP, Question("/healthz", strict=True)),
        (
            '{"httpGet":{"path":"v1/models/m","port":"http1"}}',
            Question("/v1/models/m", strict=True),
        ),
        ('{"httpGet":{"port":8080}}', Question("/", strict=True)),
        ('{"httpGet":{"path":"/a b\\n","port":8080}}', Question("/", strict=True)),
        ('{"tcpSocket":{"port":8080},"successThreshold":1}', Question(connects=True)),
        ('{"grpc":{"port":9000}}', Question()),
        ('{"exec":{"command":["true"]}}', Question()),
        ('[{"httpGet":{}}]', Question()),
        ('{"httpGet":', Question()),
    ],
)
def test_each_kind_of_probe(probe: str, asked: Question) -> None:
    assert question({VARIABLE: probe}) == asked


def test_without_a_probe_it_is_the_default() -> None:
    assert question({}) == Question() == Question("/v2/health/ready", False, False)


@pytest.mark.parametrize(
    ("asked", "status", "ready"),
    [
        (Question(), 200, True),
        (Question(), 404, True),
        (Question(), 503, False),
        (Question("/healthz", strict=True), 302, True),
        (Question("/healthz", strict=True), 404, False),
        (Question("/healthz", strict=True), 503, False),
        (Question(connects=True), 503, True),
    ],
)
def test_a_status_means_ready_or_not(asked: Question, status: int, ready: bool) -> None:
    assert asked.is_ready(status) is ready
