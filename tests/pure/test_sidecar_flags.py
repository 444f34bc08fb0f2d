"""``ringbatch sidecar``: the agent's flags, and what becomes of each."""

from typing import Any

import pytest

from ringbatch.engine.command import cli
from ringbatch.engine.config.settings import Config


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    found: list[Config] = []

    def run(config: Config) -> int:
        found.append(config)
        return 0

    monkeypatch.setattr("ringbatch.engine.supervisor.run.run", run)
    return found


def configured(calls: list[Config], *arguments: str) -> Config:
    assert cli.main(["sidecar", *arguments]) == 0
    return calls.pop()


def test_without_flags_it_stands_where_the_agent_does_and_nobody_waits(calls: list[Config]) -> None:
    config = configured(calls)
    (model,) = config.models
    assert (config.server.host, config.server.port, config.server.sidecar) == (
        "0.0.0.0",
        9081,
        True,
    )
    assert (model.path, model.platform, model.protocol) == ("http://127.0.0.1:8080", "http", "v1")
    assert (model.max_batch_size, model.policy, model.workers) == (32, "eager", 4)
    assert config.passes_to == "http://127.0.0.1:8080"


def test_it_is_not_the_model_server_of_its_own(
    calls: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["sidecar", "--port", "8080"]) == 2
    assert calls == []
    assert capsys.readouterr().err == (
        "ringbatch: --component-port: http://127.0.0.1:8080 is this engine's own address, by "
        "--host and port; requests would come back to it\n"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "--port 1 --component-port 2 --max-batchsize 3 --max-latency 5000 --enable-batcher",
        "-port=1 -component-port=2 -max-batchsize=3 -max-latency=5000 -enable-batcher=true",
    ],
)
def test_the_agents_flags_keep_their_meaning(calls: list[Config], arguments: str) -> None:
    config = configured(calls, *arguments.split())
    (model,) = config.models
    assert config.server.port == 1
    assert model.path == "http://127.0.0.1:2"
    assert (model.max_batch_size, model.max_latency_ms, model.policy) == (3, 5000.0, "fixed")


def test_our_own_flags_win(calls: list[Config]) -> None:
    words = "--max-latency 5 --policy eager --workers 9 --timeout-s 3 --frontends 1 --kserve-errors"
    config = configured(calls, *words.split(), "--forward-headers", "X-A", "--host", "::1")
    (model,) = config.models
    assert (model.policy, model.workers, model.timeout_s, model.kserve_errors) == (
        "eager",
        9,
        3,
        True,
    )
    assert model.forward_headers == ("x-a",)
    assert (config.server.frontends, config.server.host) == (1, "::1")


def test_flags_of_the_agents_other_parts_do_nothing_and_are_reported(
    calls: list[Config], capsys: pytest.CaptureFixture[str]
) -> None:
    configured(calls, "--namespace", "n", "--model-dir=/m", "--enable-puller=false", "--log-url=")
    assert capsys.readouterr().err == (
        "ringbatch: --model-dir does nothing here: it is for the agent's puller, stores or probes\n"
    )


def test_flags_of_the_agents_logger_set_the_payload_log(calls: list[Config]) -> None:
    words = "--log-url http://l:1/x --log-mode request --inference-service s --namespace=n"
    words += " -component predictor --endpoint default --metadata-headers X-A,user-agent"
    words += " --metadata-annotations a=b,c=d"
    server = configured(calls, *words.split()).server
    assert (server.payload_log, server.payload_log_mode) == ("http://l:1/x", "request")
    assert server.payload_log_attributes == (
        "inferenceservicename=s",
        "namespace=n",
        "component=predictor",
        "endpoint=default",
        'annotations={"a":"b","c":"d"}',
    )
    assert server.payload_log_headers == ("x-a", "user-agent")
    assert server.payload_log_source == "http://localhost:9081/"
    assert not server.payload_log_failures
    assert configured(calls).server.payload_log is None


def test_the_source_of_the_agents_logger_may_be_another(calls: list[Config]) -> None:
    words = "--log-url http://l --source-uri http://me/ --port 7"
    assert configured(calls, *words.split()).server.payload_log_source == "http://me/"
    words = "--log-url http://l --port 7"
    assert configured(calls, *words.split()).server.payload_log_source == "http://localhost:7/"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--log-url s3://bucket", '--log-url: found "s3://bucket", but it must be the path of '),
        ("--log-url http://l --log-mode most", '--log-mode: found "most", but it must be "all" or'),
        ("--log-url http://l --metadata-headers Cookie", "--metadata-headers: cookie may hold a "),
        ("--logger-tls-skip-verify", "--logger-tls-skip-verify: a server that nobody vouches for"),
        ("--log-store-path /m", "--log-store-path: requests are kept by the server at --log-url"),
        ("--enable-puller", "--enable-puller: models are not pulled here"),
        ("--enable-batcher=false", "--enable-batcher: this is nothing but a batcher, so it "),
        ("--port x", '--port: found "x", but it must be a whole number from 0 to 65535'),
        ("--max-batchsize -1", "--max-batchsize: found -1, but it must be a whole number from "),
        (
            "--max-latency 70000",
            "--max-latency: found 70000 ms, but it must be at most --timeout-s",
        ),
        *(
            (
                f"--component-port {port}",
                f'--component-port: found "{port}", but it must be a whole number from 1 to ',
            )
            for port in ("x", "0", "65536", "²")
        ),
    ],
)
def test_an_impossible_value_is_refused_by_the_flags_own_name(
    calls: list[Config], capsys: pytest.CaptureFixture[str], arguments: str, words: str
) -> None:
    assert cli.main(["sidecar", *arguments.split()]) == 2
    assert capsys.readouterr().err.startswith(f"ringbatch: {words}")
    assert not calls


def test_an_unknown_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["sidecar", "--nonsense"])
    assert caught.value.code == 2
    assert "--nonsense" in capsys.readouterr().err


def test_the_help_leaves_out_flags_that_do_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["sidecar", "--help"])
    printed: Any = capsys.readouterr().out
    assert "--component-port" in printed
    assert "--model-dir" not in printed
