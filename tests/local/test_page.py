"""The page's resources: what it is made of, and what its parts say."""

import os
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from page_harness import client

from ringbatch.shm.segment import Segment


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patch the engine's name, pid and serving lanes, which a local segment lacks."""
    monkeypatch.setattr(Segment, "engine", "prod")
    monkeypatch.setattr(Segment, "pid", os.getpid())
    monkeypatch.setattr(Segment, "serving_lanes", lambda _: 1)


class Links(HTMLParser):
    """The addresses in a document, and what could run or look like something in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.found += [value for key in ("href", "src") if (value := named.get(key))]
        self.ids += [value for value in [named.get("id")] if value]
        if tag == "style" or (tag == "script" and "src" not in named):
            self.inline.append(tag)
        self.inline += [key for key in named if key == "style" or key.startswith("on")]


def test_the_page_requests_only_files_that_are_shipped_with_it() -> None:
    asked = client()
    answer = asked.simulate_get("/")
    assert answer.status_code == 200
    links = Links(answer.text)
    assert links.inline == [], "the policy would refuse it"
    assert len(links.ids) == len(set(links.ids))
    for link in links.found:
        if link.startswith("#"):
            assert link[1:] in links.ids
        elif link != "metrics":
            assert asked.simulate_get(f"/{link}").status_code == 200, link


MEDIA = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@pytest.mark.parametrize(
    "name", [file.name for file in files("ringbatch.frontend.page").joinpath("assets").iterdir()]
)
def test_a_part_has_its_media_type_and_is_not_sent_twice(name: str) -> None:
    path, asked = "/" if name == "page.html" else f"/assets/{name}", client()
    answer = asked.simulate_get(path)
    assert answer.headers["content-type"].startswith(MEDIA.get(name.split(".")[-1], "text/plain"))
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "//" not in policy
    known = asked.simulate_get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")
    assert asked.simulate_get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    head = asked.simulate_head(path)
    assert (head.status_code, head.content) == (200, b"")


def test_scripts_write_no_html_and_name_no_other_server() -> None:
    for file in files("ringbatch.frontend.page").joinpath("assets").iterdir():
        if file.name.endswith((".js", ".html", ".css")) and not file.name.startswith("uPlot"):
            text = file.read_text()
            for unwanted in ("innerHTML", "outerHTML", "insertAdjacent", "eval(", "http://"):
                assert unwanted not in text, file.name
            assert "https://" not in text, file.name


def test_the_library_is_shipped_with_its_licence() -> None:
    assert "MIT License" in client().simulate_get("/assets/uPlot.LICENSE").text


def test_other_paths_are_nowhere() -> None:
    for path in ("/assets/", "/assets/page.py", "/assets/../feed.py", "/page.html", "/live/x"):
        answer = client().simulate_get(path)
        assert answer.status_code == 404
        assert "error" in answer.json


@pytest.mark.parametrize("path", ["/metrics", "/v2/health/live", "/v2/health/ready"])
def test_head_is_answered_as_get_without_its_body(path: str) -> None:
    asked = client()
    whole, head = asked.simulate_get(path), asked.simulate_head(path)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert int(head.headers["content-length"]) > 0
    assert asked.simulate_post(path).status_code == 405
