"""The errors' page has every status and every form of message that the code gives."""

import ast
import re
from itertools import chain

import pytest
from documents.error_messages import Message, messages
from documents.pages import ROOT, section, table
from generator.error_forms import GROUPS, Form
from generator.errors import CLASSES, matches

from ringbatch.frontend.codec.outcome import RULES
from ringbatch.shm import model_readiness

ERRORS = "docs/reference/errors.md"
FORMS = [form for group in GROUPS for form in group.forms]
LITERAL_LEAST = 7
"""Characters of a form that are no wildcard, so that it does not cover everything."""
WORKERS_OWN = re.compile(r"model \.\.\.")


@pytest.fixture(scope="module")
def found() -> list[Message]:
    """Messages of the code, which takes a second to read."""
    return [*messages(CLASSES)]


def test_enough_messages_are_found(found: list[Message]) -> None:
    assert len(found) > 200


def test_every_message_has_its_row(found: list[Message]) -> None:
    assert [message for message in found if not _has_row(message)] == []


def _has_row(message: Message) -> bool:
    rows = [form for form in FORMS for text in form.texts if matches(text, message.form)]
    return message.error in {form.error for form in rows}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.texts[0])
def test_every_row_is_for_a_message(form: Form, found: list[Message]) -> None:
    own = [message.form for message in found if message.error == form.error]
    for text in form.texts:
        assert len(text.replace("...", "")) >= LITERAL_LEAST
        assert WORKERS_OWN.match(text) or any(matches(text, one) for one in own), text


def test_every_outcome_has_its_row() -> None:
    rows = [(row[0], row[2].strip("`")) for row in table(ERRORS, "HTTP")]
    assert rows == [(str(rule.status), kind.__name__) for kind, rule in RULES.items()]


def test_the_statuses_of_http_are_those_of_the_code() -> None:
    code = "".join(path.read_text() for path in (ROOT / "frontend").rglob("*.py"))
    plain = re.findall(r"(?:_refuse|_stop)\((\d{3})|status, refusal = (\d{3})", code)
    named = {
        "HTTPForbidden": "403",
        "HTTPRouteNotFound": "404",
        "HTTPMethodNotAllowed": "405",
        "HTTPLengthRequired": "411",
        "HTTPUnsupportedMediaType": "415",
        "HTTPNotImplemented": "501",
        "HTTPServiceUnavailable": "503",
    }
    raised = {*re.findall(r"raise falcon\.(\w+)", code)} - {"HTTPUnauthorized"}
    assert raised == {*named}
    cells = table_of("Statuses of HTTP itself")
    assert {row[0] for row in cells} == {*filter(None, chain(*plain)), *named.values(), "499"}


def test_the_texts_of_http_are_those_of_the_code() -> None:
    code = " ".join(path.read_text() for path in (ROOT / "frontend").rglob("*.py"))
    code = re.sub(r'"\s+f?"', "", code)
    for _, text, *_ in table_of("Statuses of HTTP itself"):
        pieces = [piece for piece in text.strip("`").split("...") if len(piece) >= LITERAL_LEAST]
        assert [piece for piece in pieces if piece not in code] == []


def test_the_reasons_of_readiness_are_those_of_the_code() -> None:
    texts = [row[0].strip("`") for row in table(ERRORS, "reason")]
    source = (ROOT / "shm/model_readiness.py").read_text()
    of_standing = [
        node.value
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef)
        and function.name in ("_holding", "_without_collector")
        for node in ast.walk(function)
        if isinstance(node, ast.Assign | ast.Return)
    ]
    wanted = [*model_readiness._WORDS.values(), *map(_literal, of_standing)]
    wanted = [words for words in wanted if words]
    assert len(wanted) >= 10
    assert [one for one in wanted if not any(matches(text, one) for text in texts)] == []
    assert [text for text in texts if not any(matches(text, one) for one in wanted)] == []


def _literal(node: ast.expr | None) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    known = [str(part.value) if isinstance(part, ast.Constant) else "..." for part in parts]
    return "" if known == ["..."] else "".join(known)


def table_of(title: str) -> list[list[str]]:
    """Return the cells of the only table of a section."""
    lines = [line for line in section(ERRORS, title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
