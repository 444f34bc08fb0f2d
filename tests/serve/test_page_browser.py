"""The page in a real browser, Debian's Chromium, while an engine is under load.

Where the environment names a folder in RINGBATCH_SCREENSHOTS, screenshots are left there.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from serve.browser import Browser
from serve.load import Load
from serve.server import Server, Start
from tiers import exhaustive

pytestmark = exhaustive

WaitUntil = Callable[..., Any]
SCREENS: Final = {
    "light": (1440, 1000, "light"),
    "dark": (1440, 1000, "dark"),
    "phone": (360, 740, "light"),
    "tablet": (768, 1024, "dark"),
    "wide": (2560, 1300, "dark"),
}
ODD: Final = "odd.<b onclick=x>&amp;"
LEAST_CONTRAST: Final = 4.5
CARD: Final = "document.querySelector('.model')"
CARD_IS_THERE: Final = f"""
new Promise((resolve) => {{
  const look = setInterval(() => {{
    if ({CARD}?.querySelector('.uplot')) {{ clearInterval(look); resolve(); }}
  }}, 20);
}})
"""
SWITCHES: Final = [
    *("2 min", "5 min", "10 min"),
    *("Latency", "Batch sizes", "Part gaps"),
    *("Hold still", "Charts"),
]

NAMED: Final = ("button", "link", "table", "region", "figure", "toolbar")
"""Roles of which a screen reader says the name."""

CONTRASTS: Final = """
(() => {
  const lights = (colour) => {
    const parts = colour.match(/[\\d.]+/g).map(Number);
    const [red, green, blue] = parts.slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return { light: 0.2126 * red + 0.7152 * green + 0.0722 * blue, clear: parts[3] === 0 };
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const found = lights(getComputedStyle(node).backgroundColor);
      if (!found.clear) return found.light;
    }
    return 1;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility()) continue;
    const [one, other] = [lights(getComputedStyle(node).color).light, ground(node)];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < LEAST) found.push(`${walker.currentNode.data.trim()}: ${contrast.toFixed(2)}`);
  }
  return found;
})()
"""


@pytest.fixture(scope="module")
def server(start_for_module: Start) -> Server:
    return start_for_module({"echo": {"path": "moody.py"}}, control_port=0)


@pytest.fixture(scope="module")
def url(server: Server) -> str:
    found = re.search(r"a page on (http://\S+)", server.stdout)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    made = Browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def page(server: Server, url: str, browser: Browser) -> Iterator[Browser]:
    """The page, open while clients ask."""
    browser.look_like(*SCREENS["light"])
    browser.open(url)
    load = Load(server, clients=4, pause_s=0.01)
    browser.value(CARD_IS_THERE)
    yield browser
    load.stop()
    assert load.failures == []


def number(page: Browser, name: str) -> float:
    """Return a number that the page shows for the first model."""
    text = page.value(f"{CARD}?.querySelector('.{name} dd').textContent ?? ''")
    found = re.match(r"[\d,.]+", text)
    return float(found[0].replace(",", "")) if found else 0.0


def test_numbers_and_charts_come_by_themselves(page: Browser, wait_until: WaitUntil) -> None:
    wait_until(lambda: number(page, "rate") > 0 and number(page, "p99") > 0, "numbers")
    assert page.value("document.getElementById('state').textContent") == "ready"
    assert page.value(f"{CARD}.querySelectorAll('.uplot canvas').length") == 4
    wait_until(
        lambda: "requests ended" in page.value(f"{CARD}.querySelector('figcaption').textContent"),
        "the chart in words",
    )
    wait_until(lambda: page.value("document.querySelectorAll('#slowest tbody tr').length") > 0, "")
    assert "ready" in page.value("document.querySelector('#workers tbody').textContent")


def test_nothing_is_asked_for_elsewhere_and_nothing_is_complained_of(
    page: Browser, url: str
) -> None:
    page.value("1")
    assert page.complaints == []
    assert [asked for asked in page.asked if not asked.startswith(url)] == []
    assert len(page.asked) > 5


@pytest.mark.parametrize("screen", SCREENS)
def test_it_fits_every_screen_and_can_be_read(
    page: Browser, screen: str, tmp_path: Path, wait_until: WaitUntil
) -> None:
    width, height, scheme = SCREENS[screen]
    page.look_like(width, height, scheme)
    # uPlot draws in the frame after the next.
    wait_until(
        lambda: (
            page.value(
                f"[...{CARD}.querySelectorAll('.uplot')]"
                f".filter((one) => one.offsetWidth <= {width}).length"
            )
            == 4
        ),
        "charts of that width",
    )
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value(CONTRASTS.replace("LEAST", str(LEAST_CONTRAST))) == []
    folder = Path(os.environ.get("RINGBATCH_SCREENSHOTS", tmp_path))
    page.screenshot(folder / f"{screen}.png")
    assert (folder / f"{screen}.png").stat().st_size > 10_000


def test_switches_are_reached_and_moved_by_keys(page: Browser, wait_until: WaitUntil) -> None:
    page.look_like(*SCREENS["light"])
    page.value("document.activeElement.blur()")
    reached: list[str] = []
    for _ in range(20):
        page.press("Tab", 9)
        focused = page.value(
            "({tag: document.activeElement.tagName, text: document.activeElement.textContent, "
            "seen: getComputedStyle(document.activeElement).outlineStyle})"
        )
        assert focused["seen"] == "solid", f"{focused['text']} does not show that it is chosen"
        if focused["tag"] == "BUTTON":
            reached.append(focused["text"])
            if focused["text"] == "Batch sizes":
                page.press("Enter", 13)
    assert [text for text in reached if text in SWITCHES] == SWITCHES
    pressed = "document.querySelector('[data-heat=sizes]').getAttribute('aria-pressed')"
    assert page.value(pressed) == "true"
    heading = f"{CARD}.querySelector('.broad h3').textContent"
    wait_until(lambda: page.value(heading) == "Batches by their size", "the other heat map")


def test_its_content_has_names_for_blind_readers(page: Browser) -> None:
    assert page.value("document.documentElement.lang") == "en"
    assert page.value("[...document.querySelectorAll('table')].every((t) => t.caption)")
    assert page.value("[...document.querySelectorAll('thead th')].every((t) => t.scope === 'col')")
    assert page.value(
        "[...document.querySelectorAll('figure')].every((f) => f.querySelector('h3'))"
    )
    live = page.value("[...document.querySelectorAll('[aria-live]')].map((one) => one.id)")
    assert live == ["liveness"]
    nodes = page.do("Accessibility.getFullAXTree")["nodes"]
    unnamed = [
        node["role"]["value"]
        for node in nodes
        if node.get("role", {}).get("value") in NAMED
        and not node.get("ignored")
        and not node.get("name", {}).get("value")
    ]
    assert unnamed == []


NUMBERS: Final = {
    "rate(0)": "0",
    "rate(3.14)": "3.1",
    "rate(12345.6)": "12,346",
    "rate(null)": "\u2013",
    "time(0.05)": "50 µs",
    "time(3.456)": "3.5 ms",
    "time(1500)": "1.50 s",
    "bytes(1536)": "1.5 KiB",
    "share(0.004)": "0.4 %",
    "duration(3 * 3600000 + 60000)": "3 h 1 min",
    "quantile({}, [1, 2, 4], 0.5)": None,
    "quantile({0: 10}, [1, 2, 4], 0.5)": 0.5,
    "quantile({0: 5, 2: 5}, [1, 2, 4], 0.9)": pytest.approx(3.6),
    "quantile({3: 1}, [1, 2, 4], 0.99)": 4,
    "meanSize({'1': 1, '3-4': 1})": 2.25,
    "classWords({}, 10)": "",
    "classWords({bulk: [20, 10, 5, 0]}, 0)": "",
    "classWords({normal: [20, 10, 5, 0], bulk: [5, 9000, 15, 10]}, 10)": (
        "normal: 2.0 requests/s, queue 500 µs, 25 % of the model; "
        "bulk: 0.5 requests/s, queue 1.80 s, 75 % of the model, 1.0 refused/s"
    ),
    "classWords({bulk: [0, 0, 0, 5]}, 10)": "bulk: 0 requests/s, 0.5 refused/s",
    "classes({'200': 3, '204': 1, '404': 2, '503': 5})": {"ok": 4, "client": 2, "server": 5},
}


@pytest.mark.parametrize("expression", NUMBERS)
def test_numbers_are_computed_and_written_right(page: Browser, expression: str) -> None:
    name = expression.partition("(")[0]
    found = page.value(f"import('/assets/numbers.js').then(({{{name}}}) => {expression})")
    assert found == NUMBERS[expression]


PAST: Final = """
import('/assets/past.js').then(({Past}) => {
  const past = new Past();
  const add = (at, models) => past.add({at, ms: 1000, models, slots: 1, memory: 2, marks: []});
  const second = {m: {codes: {200: 4, 503: 1}, times: {1: 4},
    closed: {full: 2}, classes: {bulk: [1, 2, 3, 4]}, flight: 3, waiting: 1}};
  add(1000, second); add(1000, second); add(500, second); add(2000, second); add(9000, {});
  add(700000, second);
  const last = past.seconds.length;
  past.forgetAfter(1);
  add(2000, second); add(2000, second); add(3000, second); add(2500, second); add(9000, second);
  return {
    last, throughput: past.throughput("m", 0), closed: past.closed("m", 0)[1],
    queue: past.queue("m", 0), sum: past.summed("m", 2500), none: past.summed("n", 0).ms,
    first: past.percentiles("m", 2500, [1, 2, 4])[0],
  };
})
"""


def test_the_past_has_each_second_once_and_says_where_it_has_gaps(page: Browser) -> None:
    found = page.value(PAST)
    assert found["last"] == 1, "what is older than ten minutes is gone"
    at, answered, client, server = found["throughput"]
    assert at == [2, 3, 3.001, 9]
    assert (answered, client, server) == ([4, 4, None, 4], [0, 0, None, 0], [1, 1, None, 1])
    assert found["closed"] == [2, 2, None, 2]
    assert found["queue"][1:] == [[1, 1, None, 1], [2, 2, None, 2]]
    assert (found["sum"]["ms"], found["sum"]["codes"]) == (2000, {"200": 8, "503": 2})
    assert found["sum"]["classes"] == {"bulk": [2, 4, 6, 8]}
    assert found["none"] == 0
    assert found["first"] == [3, 3.001, 9]


def test_names_are_text_with_any_content(page: Browser) -> None:
    made = page.value(
        "import('/assets/models.js').then(({ModelCard}) => {"
        f"const card = new ModelCard({ODD!r}, 99);"
        "return [card.root.querySelector('h2').textContent, card.root.querySelectorAll('b').length,"
        "[...card.root.querySelectorAll('[onclick]')].length]; })"
    )
    assert made[0] == ODD
    assert made[2] == 0


def test_a_dead_worker_is_shown(page: Browser, server: Server, wait_until: WaitUntil) -> None:
    os.kill(server.role("worker echo/0"), signal.SIGKILL)
    happened = "document.getElementById('marks').textContent"
    wait_until(lambda: "a worker of echo killed" in page.value(happened), "the mark")


def test_it_says_that_nobody_answers_and_goes_on_by_itself(
    page: Browser, server: Server, wait_until: WaitUntil
) -> None:
    status_text = "document.getElementById('liveness').textContent"
    control = server.role("control")
    page.complaints.clear()
    os.kill(control, signal.SIGSTOP)
    os.kill(control, signal.SIGKILL)
    wait_until(
        lambda: re.search(r"No answer since .*, trying again", page.value(status_text)), "words"
    )
    wait_until(lambda: page.value(status_text) == "Live: the engine is ready.", "the page goes on")
    before = page.value("document.querySelector('#facts').textContent")
    wait_until(
        lambda: page.value("document.querySelector('#facts').textContent") != before, "time passes"
    )
