"""The page in a real browser while a model answers in parts, beside one that does not."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import pytest
from serve.browser import Browser
from serve.server import Server, Start
from tiers import exhaustive

pytestmark = exhaustive

WaitUntil = Callable[..., Any]
GAPS: Final = "Parts by the time since the one before"
LATENCIES: Final = "Requests by their latency"
CARDS: Final = "[...document.querySelectorAll('.model')]"


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    models = {"counting": {"path": "counting.py"}, "echo": {"path": "moody.py"}}
    return start_for_module(models, control_port=0)


@pytest.fixture(scope="module")
def page(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = re.search(r"a page on (http://\S+)", server.stdout)
    assert found is not None
    browser = Browser(tmp_path_factory.mktemp("browser"))
    browser.look_like(1440, 1000, "light")
    browser.open(found[1])
    yield browser
    browser.close()


def count(server: Server, parts: int) -> None:
    """Send a request that is answered in so many parts."""
    with httpx.Client(timeout=60, trust_env=False, verify=False) as client:
        path = f"http://127.0.0.1:{server.port}/v1/models/counting:predict"
        body = {"instances": [[parts]]}
        answer = client.post(path, json=body, headers={"Accept": "text/event-stream"})
    assert answer.text.count("data: ") == parts


def card(title: str) -> str:
    return f"{CARDS}.find((one) => one.querySelector('h2').textContent === '{title}')"


def test_a_model_in_parts_has_their_rate_and_the_others_have_none(
    page: Browser, server: Server, wait_until: WaitUntil
) -> None:
    def shown(key: str) -> str:
        text: str = page.value(f"{card('counting')}.querySelector('.{key} dd').textContent")
        return text

    def counted() -> bool:
        count(server, 50)
        return all(re.match("[1-9]", shown(key)) for key in ("parts", "first"))

    wait_until(lambda: page.value(f"{CARDS}.length") == 2, "cards")
    wait_until(counted, "parts/s and the time to the first")
    for key in ("parts", "first"):
        seen = [
            page.value(f"{card(title)}.querySelector('.{key}').checkVisibility()")
            for title in ("counting", "echo")
        ]
        assert seen == [True, False]


def test_gaps_between_parts_have_a_heat_map(
    page: Browser, server: Server, wait_until: WaitUntil
) -> None:
    figure = f"{card('counting')}.querySelector('.broad')"
    heading = f"{figure}.querySelector('h3').textContent"
    words = f"{figure}.querySelector('figcaption').textContent"
    picture = f"{figure}.querySelector('canvas').toDataURL()"

    def chosen(kind: str, title: str) -> tuple[str, str]:
        page.value(f"document.querySelector('[data-heat={kind}]').click()")
        wait_until(lambda: page.value(heading) == title, "the heat map")
        return page.value(picture), page.value(words)

    def counted() -> bool:
        count(server, 50)
        return all(
            said.startswith("Most: ")
            for _, said in (chosen("gaps", GAPS), chosen("times", LATENCIES))
        )

    wait_until(lambda: page.value(f"{CARDS}.length") == 2, "cards")
    wait_until(counted, "both heat maps in words")
    page.value("document.querySelector('#pause').click()")
    before, times = chosen("gaps", GAPS), chosen("times", LATENCIES)
    # At the same instant; most parts come together, and no request is answered in no time.
    gaps = chosen("gaps", GAPS)
    assert before == gaps
    assert gaps[0] != times[0]
    assert gaps[1] != times[1]
    assert page.complaints == []
