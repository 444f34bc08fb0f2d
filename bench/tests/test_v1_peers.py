"""Peers serve what ringbatch serves: the same models, asked and answered in forms that agree."""

import asyncio
import importlib
import json
import sys
from email.message import Message
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from load import tensors
from load.answers import Answer
from load.tensors import V1_BARE, V1_JSON
from peers.frameworks import SUBJECTS, Setting
from peers.servers import MODELS, SERVICES
from tiers import exhaustive

from ringbatch.engine.models.model import Options
from ringbatch.engine.runtimes.opening import open_model

SETTING = Setting({"one": "null", "two": "matmul16"}, cap=5, wait_ms=20.0)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """services/work.py as a peer of that setting imports it."""
    for name, value in SETTING.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(SERVICES))
    monkeypatch.delitem(sys.modules, "work", raising=False)
    return importlib.import_module("work")


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_peer_calculates_as_the_model_does(name: str, service: ModuleType) -> None:
    subject = SUBJECTS[name]
    model = open_model("python", MODELS / f"{name}.py", Options(max_batch_size=8, threads=1))
    model.load()
    x = np.stack([subject.instance(seed) for seed in (1, 2)])
    ours = model.predict(x)
    assert np.allclose(ours, subject.expected(x), rtol=1e-4, atol=1e-5)
    assert np.allclose(service.WORK[name](x.tolist()), ours, rtol=1e-4, atol=1e-5)


def test_a_service_gets_every_model_and_setting(service: ModuleType) -> None:
    assert list(service.models()) == ["one", "two"]
    assert (service.CAP, service.WAIT_MS, service.TIMEOUT_S) == (5, 20.0, 30.0)
    assert service.path("null") == SUBJECTS["null"].v1_path


def test_a_bare_answer_is_read_where_a_peer_gives_one() -> None:
    subject = SUBJECTS["affine"]
    tensors.check(subject, V1_BARE, 3, Answer(Message(), b"[[6.0]]"))
    tensors.check(subject, V1_JSON, 3, Answer(Message(), b'{"predictions": [[6.0]]}'))
    assert json.loads(tensors.post(subject, V1_JSON, 3).body) == {"instances": [[3.0]]}


@exhaustive  # it needs FastAPI
def test_kserves_batcher_fills_a_batch_and_then_waits_for_the_next(service: ModuleType) -> None:
    batcher_module = importlib.import_module("v1_kserve")
    sizes: list[int] = []

    def predict(rows: list[int]) -> list[int]:
        sizes.append(len(rows))
        return rows

    async def ask_all() -> list[Any]:
        batcher = batcher_module.Batcher(predict)
        return list(await asyncio.gather(*(batcher.ask(number) for number in range(7))))

    answers = asyncio.run(ask_all())
    assert sizes == [5, 2]
    assert [answer["predictions"] for answer in answers] == [[number] for number in range(7)]
    assert len({str(answer["batchId"]) for answer in answers}) == 2
