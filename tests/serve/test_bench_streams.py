"""`ringbatch bench --stream` against a real engine: every form of events, and words.

Tests bench/ringbatch/bench/command/bodies.py and bench/ringbatch/bench/command/first_answers.py.
"""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from dev_shm import takes
from documents.pages import example
from serve.server import Server, Start
from text_generators import write_generator
from tiers import exhaustive, only

from ringbatch.bench.command.settings import Protocol, Settings
from ringbatch.bench.command.subject import Subject, find
from ringbatch.bench.load.arrivals import Arrivals, Kind
from ringbatch.bench.load.outcome import WRONG
from ringbatch.bench.served.asking import Address
from ringbatch.bench.served.engine import Served
from ringbatch.bench.served.failures import CannotMeasure
from ringbatch.engine.command import cli

pytestmark = takes(30)

PARTS = 5
QUICK = ("--even-if-busy", "--duration-s", "0.3", "--rounds", "1", "--max-lag-ms", "60000")
LENIENT = ("--slo-first-part-ms", "20000", "--slo-gap-ms", "20000")
COUNTING = Path(__file__).parents[2] / "bench" / "models" / "continuous.py"
V2_BODY = {"inputs": [{"name": "n", "shape": [1], "datatype": "INT64", "data": [PARTS]}]}
CHAT = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 40}
BODIES: dict[Protocol, dict[str, Any]] = {
    Protocol.V1: {"instances": [PARTS]},
    Protocol.V2: V2_BODY,
    Protocol.GENERATE: {"n": PARTS},
    Protocol.COMPLETIONS: {"prompt": "abc", "max_tokens": 40},
    Protocol.CHAT: CHAT,
}
OPENAI = (Protocol.COMPLETIONS, Protocol.CHAT)


@pytest.fixture(scope="module")
def server(start_for_module: Start, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """Server with two models in steps, a text generator, and a model of one part."""
    generator = write_generator(tmp_path_factory.mktemp("generators") / "repeating")
    models = {
        "counting": {"path": str(COUNTING), "max_batch_size": 8},
        "stepping": {"path": "stepping.py", "max_batch_size": 8},
        "repeating": {"path": str(generator), "max_batch_size": 8},
        "matmul": {"path": "matmul.py"},
    }
    return start_for_module(models, control_port=0, lane_bytes=1 << 22)


@pytest.fixture
def subject(server: Server, tmp_path: Path) -> Callable[[Protocol], Subject]:
    """Return what is measured over a protocol, in parts."""

    def make(protocol: Protocol, **more: Any) -> Subject:
        body = tmp_path / "body.json"
        body.write_bytes(orjson.dumps(BODIES[protocol]))
        model = "repeating" if protocol in OPENAI else "counting"
        settings = Settings(model=model, request=body, protocol=protocol, stream=True)
        served = Served(Address("127.0.0.1", server.port), None)
        return find(served, replace(settings, **more))

    return make


@pytest.mark.parametrize(
    "protocol", only({protocol: protocol for protocol in BODIES}, "v1", "completions")
)
def test_every_part_of_every_answer_is_compared(
    subject: Callable[[Protocol], Subject], protocol: Protocol
) -> None:
    found = subject(protocol)
    with found.fleet(2, check=True) as fleet:
        open_loop = fleet.run(Arrivals(Kind.POISSON, 0.4, 100, seed=3), 64, 30)
        closed = fleet.run(Arrivals(Kind.CLOSED, 0.3), 5, 30)
    for outcome in (open_loop, closed):
        assert set(outcome.counts()) == {200}
        parts = outcome.parts
        assert parts is not None
        assert (parts.counts > 1).all()
        if protocol not in OPENAI:
            assert set(parts.counts.tolist()) == {PARTS}
        assert parts.gaps.total <= parts.counts.sum() - len(parts.counts)
        # The first part comes before the whole answer, and no gap is longer than all of it.
        assert (parts.first_ns <= outcome.took_ns).all()
        assert (parts.longest_ns <= outcome.took_ns).all()
        assert parts.short == 0
        assert parts.busy > 0
    assert closed.parts is not None
    assert 0 < closed.parts.in_run <= closed.parts.counts.sum()


def test_an_answer_with_fewer_parts_is_short_and_if_compared_wrong(
    subject: Callable[[Protocol], Subject],
) -> None:
    found = subject(Protocol.GENERATE)
    longer = replace(found, answers=[found.answers[0] * 2])
    with longer.fleet(1) as fleet:
        counted = fleet.run(Arrivals(Kind.CLOSED, 0.2), 2, 30)
    assert counted.parts is not None
    assert counted.parts.short == counted.count > 0
    assert set(counted.counts()) == {200}
    with longer.fleet(1, check=True) as fleet:
        assert set(fleet.run(Arrivals(Kind.CLOSED, 0.2), 2, 30).counts()) == {WRONG}


@pytest.mark.parametrize("protocol", [Protocol.GENERATE, *OPENAI])
def test_the_same_forms_have_whole_answers_too(
    subject: Callable[..., Subject], protocol: Protocol
) -> None:
    found = subject(protocol, stream=False)
    with found.fleet(1, check=True) as fleet:
        outcome = fleet.run(Arrivals(Kind.CLOSED, 0.2), 2, 30)
    assert set(outcome.counts()) == {200}
    assert outcome.parts is None


@pytest.mark.parametrize("protocol", only({name: name for name in OPENAI}, "completions"))
def test_requests_for_text_are_made_up(subject: Callable[..., Subject], protocol: Protocol) -> None:
    found = subject(protocol, request=None)
    assert found.made_up
    bodies = [json.loads(body) for body in found.bodies]
    assert all(body["stream"] and body["model"] == "repeating" for body in bodies)
    assert len({*found.bodies}) > 1


def test_a_model_in_steps_is_known_by_its_metrics(server: Server) -> None:
    served = Served(Address("127.0.0.1", server.port), Address("127.0.0.1", server.control_port))
    assert find(served, Settings(model="counting")).in_steps()
    assert not find(served, Settings(model="matmul")).in_steps()
    unknown = replace(served, control=None)
    assert not find(unknown, Settings(model="counting")).in_steps()


# What cannot be measured


def test_a_model_of_one_part_has_no_gap(server: Server) -> None:
    served = Served(Address("127.0.0.1", server.port), None)
    with pytest.raises(CannotMeasure, match="no answer has two parts"):
        find(served, Settings(model="matmul", stream=True))


def test_an_answer_that_is_no_event_stream_is_reported(
    subject: Callable[..., Subject], tmp_path: Path
) -> None:
    plain = [("Accept", "application/json")]
    with pytest.raises(CannotMeasure, match="application/json, but it must be text/event-stream"):
        subject(Protocol.V1, headers=plain)


def test_an_answer_that_ends_with_an_error_is_reported(server: Server, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_bytes(orjson.dumps({"text": "2 raise"}))
    settings = Settings(model="stepping", request=body, protocol=Protocol.GENERATE, stream=True)
    served = Served(Address("127.0.0.1", server.port), None)
    with pytest.raises(CannotMeasure, match=r"an answer ends with an error: .*ValueError"):
        find(served, settings)


@pytest.mark.parametrize("protocol", [Protocol.GRPC, Protocol.CLIENT])
def test_protocols_without_events_are_named(server: Server, protocol: Protocol) -> None:
    served = Served(Address("127.0.0.1", server.port), None)
    settings = Settings(model="counting", stream=True, protocol=protocol)
    with pytest.raises(CannotMeasure, match=f"over {protocol} answers do not come in events"):
        find(served, settings)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--slo-gap-ms", "5"), "--slo-gap-ms 5: that is for answers in parts, see --stream"),
        (("--slo-first-part-ms", "5"), "--slo-first-part-ms 5: that is for answers in parts"),
        (("--stream", "--slo-ms", "5"), "--slo-ms 5: that is for whole answers; with --stream"),
    ],
)
def test_limits_without_their_use_are_refused(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", "--url", "http://127.0.0.1:1", *arguments]) == 2
    assert words in capsys.readouterr().err


# The command


@exhaustive
def test_the_command_of_the_page_finds_the_rate_within_both_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "body.json").write_bytes(orjson.dumps(BODIES[Protocol.V1]))
    config = f'[models.counting]\npath = "{COUNTING}"\nmax_batch_size = 8\n'
    (tmp_path / "ringbatch.toml").write_text(config)
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(example("docs/how-to/choose-settings.md", "stream"))
    assert program == "ringbatch"
    more = (*QUICK, *LENIENT, "--rates", "40,80", "--connections", "8", "--check")
    assert cli.main([*arguments, *more]) == 0
    printed = capsys.readouterr()
    assert "p99 of first parts" in printed.err
    assert "| 80 requests/s | " in printed.out
    (found,) = (tmp_path / "ringbatch-bench").glob("counting-*.json")
    result = json.loads(found.read_text())
    assert result["settings"]["slo_gap_ms"] == 20000
    assert result["settings"]["answers"] == "in events"
    closed = result["closed"]["figures"]
    assert closed["parts /s"] == pytest.approx(PARTS * closed["rate /s"], rel=0.5)
    assert closed["cut off answers"] == closed["failed answers"] == 0
    assert "limit of gaps" in found.with_suffix(".html").read_text()


@exhaustive
def test_places_are_tuned_within_the_limits_of_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "body.json").write_bytes(orjson.dumps(BODIES[Protocol.V1]))
    config = f'[models.counting]\npath = "{COUNTING}"\nmax_batch_size = 1\n'
    (tmp_path / "ringbatch.toml").write_text(config)
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(example("docs/how-to/choose-settings.md", "tune-places"))
    assert program == "ringbatch"
    assert cli.main([*arguments, *LENIENT, "--even-if-busy", "--budget-s", "30"]) == 0
    printed = capsys.readouterr()
    assert "the model works in steps: policy has no effect on it" in printed.err
    assert "max_batch_size" in printed.out
    assert "policy" not in printed.out
