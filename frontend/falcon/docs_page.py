"""The OpenAPI document as a page to read, and to send a request from.

One file without any other: style and script stand in it, and its headers allow nothing else. Only
sending needs the script; reading does not. All addresses are relative to that of the page, which
may have a proxy's prefix. The script puts the prefix into the examples.
"""

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from html import escape
from typing import Any, Final

Json = dict[str, Any]

_SCHEMA_PREFIX: Final = "#/components/schemas/"
_QUOTED_REF: Final = re.compile(r"&quot;#/components/schemas/([A-Za-z0-9._-]+)&quot;")

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8886; --soft: #8881; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
h2 { border-bottom: 1px solid var(--line); margin-top: 3rem; }
h3 { font-family: ui-monospace, monospace; font-size: 1.05rem; overflow-wrap: anywhere; }
article { border: 1px solid var(--line); border-radius: .4rem; margin: 1rem 0; padding: 0 1rem; }
pre, textarea { font: .85rem/1.45 ui-monospace, monospace; background: var(--soft); }
pre { padding: .6rem; overflow: auto; max-height: 30rem; border-radius: .3rem; }
textarea { width: 100%; box-sizing: border-box; color: inherit; border: 1px solid var(--line); }
table { border-collapse: collapse; } td, th { padding: .1rem .8rem .1rem 0; text-align: left; }
summary { cursor: pointer; padding: .2rem 0; } output { display: block; white-space: pre-wrap; }
.post::before { content: "POST "; color: light-dark(#7a3b00, #ffb366); }
.get::before { content: "GET "; color: light-dark(#0b5a2b, #7fd99a); }
"""

_SCRIPT: Final = """
const here = new URL(".", location.href).href.slice(0, -1);
for (const shown of document.querySelectorAll("pre[data-origin]"))
  shown.textContent = shown.textContent.replace(shown.dataset.origin, () => here);
document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target, shown = form.querySelector("output");
  shown.textContent = "...";
  try {
    const body = form.body ? form.body.value : undefined;
    const headers = body === undefined ? {} : { "Content-Type": "application/json" };
    const answer = await fetch(form.dataset.path, { method: form.dataset.method, headers, body });
    shown.textContent = answer.status + " " + answer.statusText + "\\n" + await answer.text();
  } catch (error) { shown.textContent = String(error); }
});
"""


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


POLICY: Final = (
    f"default-src 'none'; connect-src 'self'; style-src {_digest(_STYLE)}; "
    f"script-src {_digest(_SCRIPT)}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page's Content-Security-Policy."""


def page(document: Json, origin: str) -> str:
    """Return the page.

    Args:
        document: of `ringbatch.frontend.falcon.openapi`.
        origin: the server's address in the examples for curl if no script runs, such as
            ``http://127.0.0.1:8080``.
    """
    info = document["info"]
    title = escape(f"{info['title']} {info['version']}")
    return "".join(
        (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n",
            f"<h1>{title}</h1>\n<p>{escape(info['description'])}</p>\n",
            '<p>The same for programs: <a href="openapi.json">openapi.json</a></p>\n',
            *_contents(document["tags"]),
            *(piece for tag in document["tags"] for piece in _section(document, tag, origin)),
            '<h2 id="schemas">Schemas</h2>\n',
            *_schemas(document["components"]["schemas"]),
            f"</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n",
        )
    )


def _contents(tags: list[Json]) -> Iterator[str]:
    yield '<nav aria-label="Contents"><ul>\n'
    for tag in tags:
        yield f'<li><a href="#{_anchor(tag["name"])}">{escape(tag["name"])}</a></li>\n'
    yield '<li><a href="#schemas">schemas</a></li>\n</ul></nav>\n'


def _section(document: Json, tag: Json, origin: str) -> Iterator[str]:
    yield f'<h2 id="{_anchor(tag["name"])}">{escape(tag["name"])}</h2>\n'
    yield f"<p>{escape(tag['description'])}</p>\n"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method in ("get", "post") and tag["name"] in operation["tags"]:
                yield from _operation(document, method, path, operation, origin)


def _operation(
    document: Json, method: str, path: str, operation: Json, origin: str
) -> Iterator[str]:
    yield f'<article>\n<h3 class="{method}">{escape(path)}</h3>\n'
    yield f"<p>{escape(operation['summary'])}</p>\n"
    for parameter in operation.get("parameters", ()):
        kind = "Query parameter" if parameter["in"] == "query" else "Header"
        yield f"<p>{kind} <code>{escape(parameter['name'])}</code>: "
        yield f"{escape(parameter['description'])}</p>\n"
    content = operation.get("requestBody", {}).get("content", {})
    for media, body in content.items():
        yield _details(f"Request body, {media}", body["schema"])
    for status, response in operation["responses"].items():
        yield from _response(document, status, response)
    text = content.get("application/json", {})
    example = json.dumps(text["example"]) if "example" in text else None
    yield from _example(method, path, bool(content), example, origin)
    yield "</article>\n"


def _response(document: Json, status: str, response: Json) -> Iterator[str]:
    if "$ref" in response:
        name = response["$ref"].rpartition("/")[2]
        words = document["components"]["responses"][name]["description"]
        yield f"<p><b>{status}</b> {escape(words)}</p>\n"
        return
    yield f"<p><b>{status}</b> {escape(response['description'])}</p>\n"
    for name, header in response.get("headers", {}).items():
        yield f"<p>Header <code>{escape(name)}</code>: {escape(header['description'])}</p>\n"
    for media, body in response.get("content", {}).items():
        yield _details(f"{status}, {media}", body["schema"]) if "schema" in body else ""


def _example(
    method: str, path: str, posts: bool, example: str | None, origin: str
) -> Iterator[str]:
    words = ["curl", f"{origin}{path}"]
    if posts:
        words += ["-d", "@request.json" if example is None else example]
    yield f'<pre data-origin="{escape(origin)}">{escape(shlex.join(words))}</pre>\n'
    yield f'<form data-method="{method.upper()}" data-path=".{escape(path)}">\n'
    if posts:
        label = escape(f"Body for {path}")
        yield f'<textarea name="body" rows="4" aria-label="{label}">{escape(example or "{}")}'
        yield "</textarea>\n"
    yield '<button type="submit">Send</button>\n<output></output>\n</form>\n'


def _schemas(schemas: Json) -> Iterator[str]:
    for name, schema in schemas.items():
        yield f'<h3 id="{_anchor(name)}">{escape(name)}</h3>\n<pre>{_text(schema)}</pre>\n'


def _details(summary: str, schema: Json) -> str:
    if set(schema) == {"$ref"}:
        name = schema["$ref"].removeprefix(_SCHEMA_PREFIX)
        return f'<p>{escape(summary)}: <a href="#{_anchor(name)}">{escape(name)}</a></p>\n'
    return f"<details><summary>{escape(summary)}</summary><pre>{_text(schema)}</pre></details>\n"


def _text(schema: Json) -> str:
    """Return a schema as indented JSON, in which references are links."""
    text = escape(json.dumps(schema, indent=1, ensure_ascii=False))
    return _QUOTED_REF.sub(r'<a href="#\1">\1</a>', text)


def _anchor(name: str) -> str:
    return escape(name.replace(" ", "-"))
