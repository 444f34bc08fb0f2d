"""Metrics of model code at the control address, through deaths and reloads.

Tests engine/worker/metrics_block.py.
"""

import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from serve.client import Connection, fast, instances
from serve.server import COMMAND, MODELS, SMALL, Server, Start
from tiers import exhaustive

WaitUntil = Callable[..., object]
COUNTER_MODEL = (MODELS / "teller.py").read_text()


def scraped(server: Server) -> dict[tuple[str, ...], float]:
    """Return the samples by name and label values, without the version."""
    address = f"http://127.0.0.1:{server.control_port}/metrics"
    with urllib.request.urlopen(address, timeout=60) as answer:
        text = answer.read().decode()
    return {
        (one.name, *(v for k, v in sorted(one.labels.items()) if k != "version")): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if not one.name.startswith("ringbatch_")
    }


def count_words(server: Server, *words: str) -> int:
    with Connection(server.port) as connection:
        return connection.ask(fast("m", instances(*words))).status


@exhaustive
def test_counts_are_added_up_and_go_on_through_deaths_and_reloads(
    start: Start, tmp_path: Path, wait_until: WaitUntil
) -> None:
    model = tmp_path / "teller.py"
    model.write_text(COUNTER_MODEL)
    server = start({"m": {"path": str(model), "workers": 2}}, control_port=0)
    for _ in range(20):
        assert count_words(server, "hello", "HO") == 200
    found = scraped(server)
    assert found["told_words_total", "quiet", "m"] == 20
    assert found["told_words_total", "loud", "m"] == 20
    assert found["told_length_bucket", "2.0", "m"] == 20
    assert found["told_length_count", "m"] == 40
    assert found["told_length_sum", "m"] == 20 * (5 + 2)
    pids = {value for key, value in found.items() if key[0] == "teller_pid"}
    assert pids == {server.role(f"worker m/{number}") for number in range(2)}
    assert count_words(server, "die") == 503
    wait_until(lambda: count_words(server, "hello") == 200, "somebody tells again")
    wait_until(lambda: len(gauges(server)) == 2, "both workers are back")
    found = scraped(server)
    assert found["told_words_total", "quiet", "m"] >= 20 + 2 + 1, "each death was counted before"
    assert found["told_words_total", "loud", "m"] == 20
    assert gauges(server) - pids, "of whoever runs now"
    before = found["told_words_total", "quiet", "m"]
    model.write_text(COUNTER_MODEL.replace('"Characters."', '"Letters."'))
    reloaded = subprocess.run(
        [*COMMAND, "reload", "--pid", str(server.pid)], capture_output=True, text=True, check=False
    )
    assert reloaded.returncode == 0, reloaded.stderr
    assert count_words(server, "hello") == 200
    assert scraped(server)["told_words_total", "quiet", "m"] == before + 1
    assert "WARNING texts.teller: is there" in server.stderr


def gauges(server: Server) -> set[float]:
    return {value for key, value in scraped(server).items() if key[0] == "teller_pid"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param(
            'metrics.counter("ringbatch_requests", "Mine.")',
            "a.py: line 2: ValueError: metric ringbatch_requests: names that begin with "
            "ringbatch_ are ringbatch's own; choose another beginning",
            marks=exhaustive,
        ),
        (
            'metrics.gauge("told_words", "Others.")',
            # Either model may be the second to look.
            "both have the name told_words; call one of them otherwise",
        ),
    ],
)
def test_a_name_that_clashes_is_refused_at_start(tmp_path: Path, source: str, words: str) -> None:
    model = tmp_path / "a.py"
    model.write_text(f"from ringbatch.engine import metrics\n{source}\ndef predict(x): return x\n")
    (tmp_path / "ringbatch.toml").write_text(
        f'[server]\nport = 0\n[models.m]\npath = "{MODELS / "teller.py"}"\n'
        f'[models.a]\npath = "{model}"\n'
    )
    refused = subprocess.run(
        [*COMMAND, "serve", "--config", tmp_path / "ringbatch.toml", *SMALL],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert refused.returncode == 2
    assert words in refused.stderr
