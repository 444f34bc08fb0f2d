"""The user's own application: how it is found and imported, and which paths are its own."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringbatch.frontend import StartupError, models
from ringbatch.frontend.routes.loading import imported, main
from ringbatch.frontend.routes.models import Abandonable, AwaitableModels, Settled
from ringbatch.frontend.routes.mounted import is_ours

APP = "async def app(scope, receive, send):\n    pass\n"


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    path, loaded = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - loaded:
        del sys.modules[name]


@pytest.mark.parametrize("module", ["one_app", "in_package.api"])
def test_an_application_is_found_beside_the_configuration(tmp_path: Path, module: str) -> None:
    file = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
    file.parent.mkdir(exist_ok=True)
    file.write_text("import beside_it\n" + APP)
    (tmp_path / "beside_it.py").write_text("")
    app = imported(f"{tmp_path}/{module}:app")
    assert app.__module__ == module


def test_an_application_that_is_installed_is_found_too(tmp_path: Path) -> None:
    found: object = imported(f"{tmp_path}/asyncio:run")
    assert found is asyncio.run


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (APP, "missing:app", 'app "missing:app": there is no module missing in {0}, and none of'),
        (APP, "broken.api:app", 'app "broken.api:app": there is no module broken.api in {0}, and'),
        (APP, "broken:other", "{0}/broken.py: there is no `other`, which should be the app"),
        ("app = 3", "broken:app", "{0}/broken.py: `app` is of the type int, but it must be an"),
        ("import no_such", "broken:app", "{0}/broken.py, line 1: ModuleNotFoundError: No module"),
        ("\nx = 1 / 0", "broken:app", "{0}/broken.py, line 2: ZeroDivisionError: division by"),
        ("def f(:", "broken:app", "{0}/broken.py, line 1: "),
        ("assert False", "broken:app", "line 1: AssertionError"),
    ],
    ids=["nothing", "no-package", "no-app", "number", "its-import", "error", "syntax", "mute"],
)
def test_an_import_failure_is_reported_with_file_and_line(
    tmp_path: Path, source: str, target: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.py").write_text(source)
    with pytest.raises(StartupError) as raised:
        imported(f"{tmp_path}/{target}")
    assert words.format(tmp_path) in str(raised.value)
    for name in ("broken", "broken.api"):
        sys.modules.pop(name, None)
    assert main([f"{tmp_path}/{target}"]) == 2
    assert capsys.readouterr().err == f"{raised.value}\n"


@pytest.mark.parametrize(
    ("path", "ours"),
    [
        ("*", True),
        ("/v1/models", True),
        ("/v1/models/m:predict", True),
        ("/v2", True),
        ("/v2/health/ready", True),
        ("/", False),
        ("/docs", False),
        ("/openapi.json", False),
        ("/v1/embeddings", False),
        ("/v1/modelsx", False),
        ("/v20", False),
        ("/V2", False),
    ],
)
def test_paths_of_models_are_ours_and_all_others_the_applications(path: str, ours: bool) -> None:
    assert is_ours(path) is ours


def test_outside_a_frontend_there_are_no_models() -> None:
    with pytest.raises(StartupError, match="this process is no frontend of an engine"):
        asyncio.run(models.infer("m", []))
    with pytest.raises(StartupError, match=r"use ringbatch\.frontend\.Client"):
        _ = models.names


class Sent:
    """A call that is never answered by itself."""

    def __init__(self) -> None:
        self.abandoned = 0
        self.timeouts_ns: list[int] = []
        self.replies: list[Callable[[Settled], None]] = []

    def send(
        self, _name: str, _inputs: Any, reply: Callable[[Settled], None], timeout_ns: int
    ) -> Abandonable:
        self.timeouts_ns.append(timeout_ns)
        self.replies.append(reply)
        return self

    def answer(self, settled: Settled) -> None:
        self.replies[-1](settled)

    def abandon(self) -> None:
        self.abandoned += 1


def test_a_cancelled_request_is_abandoned_and_a_late_answer_to_it_is_nobodys() -> None:
    sent, bound = Sent(), AwaitableModels()

    async def run() -> None:
        bound.bind(sent.send, lambda: ("m",))
        asked = asyncio.ensure_future(bound.infer("m", [1]))
        await asyncio.sleep(0)
        asked.cancel()
        late: Settled = ([1], None)
        sent.answer(late)
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(run())
    assert sent.abandoned == 1


@pytest.mark.parametrize(
    ("timeout_s", "timeout_ns"),
    [(None, 0), (0.5, 500_000_000), (1e-12, 1), (1e300, 10**18)],
)
def test_a_time_limit_reaches_the_request(timeout_s: float | None, timeout_ns: int) -> None:
    sent, bound = Sent(), AwaitableModels()

    async def run() -> object:
        bound.bind(sent.send, lambda: ("m",))
        asked = asyncio.ensure_future(bound.infer("m", [1], timeout_s=timeout_s))
        await asyncio.sleep(0)
        sent.answer(([2], None))
        return await asked

    assert asyncio.run(run()) == [2]
    assert sent.timeouts_ns == [timeout_ns]


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
def test_a_time_limit_that_is_none_is_refused(timeout_s: float) -> None:
    bound = AwaitableModels()

    async def run() -> None:
        bound.bind(Sent().send, lambda: ("m",))
        await bound.infer("m", [1], timeout_s=timeout_s)

    with pytest.raises(ValueError, match="timeout_s must be above 0"):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("model", "timeout_s", "words"),
    [
        (5, None, "model is an int, not the name of a model, a str"),
        (["m"], None, "model is a list, not the name of a model, a str"),
        ("m", "1", "timeout_s is a str, not a number of seconds above 0"),
    ],
)
def test_an_argument_of_another_kind_is_named(model: Any, timeout_s: Any, words: str) -> None:
    bound = AwaitableModels()

    async def run() -> None:
        bound.bind(Sent().send, lambda: ("m",))
        await bound.infer(model, [1], timeout_s=timeout_s)

    with pytest.raises(TypeError, match=words):
        asyncio.run(run())
