"""Tables of the errors' page: statuses, and forms of messages."""

import re
from collections.abc import Iterator
from typing import Final

from generator.error_forms import GROUPS, Form, Group
from ringbatch.frontend.client.errors import ClientClosed, EngineGone, Interrupted
from ringbatch.frontend.codec import grpc_codes
from ringbatch.frontend.codec.outcome import RULES, WrongCount

CLASSES: Final = {
    kind.__name__: kind for kind in (*RULES, WrongCount, ClientClosed, EngineGone, Interrupted)
}
_CODES: Final = {value: name for name, value in vars(grpc_codes).items() if isinstance(value, int)}


def statuses() -> str:
    """Return the table of errors with their statuses over HTTP and gRPC."""
    rows = [
        f"| {rule.status} | {_CODES[rule.code]} | `{kind.__name__}` | {rule.text} |"
        for kind, rule in RULES.items()
    ]
    head = ["| HTTP | gRPC | error | text if there are no details |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def messages() -> str:
    """Return a table of message forms for each group."""
    return "\n\n".join(part for group in GROUPS for part in _group(group))


def matches(form: str, message: str) -> bool:
    """Return whether a message has this form."""
    return re.fullmatch(re.escape(form).replace(r"\.\.\.", ".*"), message, re.DOTALL) is not None


def _group(group: Group) -> Iterator[str]:
    yield f"### {group.title}"
    rows = [_row(form) for form in group.forms]
    yield "\n".join(["| status | message | cause | remedy |", "|---|---|---|---|", *rows])


def _row(form: Form) -> str:
    texts = "<br>".join(_code(text) for text in form.texts)
    return f"| {_status(form.error)} | {texts} | {form.cause} | {form.remedy} |"


def _code(text: str) -> str:
    return f"``{text}``" if "`" in text else f"`{text}`"


def _status(error: str) -> str:
    kind = CLASSES[error]
    rules = [RULES[one] for one in kind.__mro__ if one in RULES]
    return str(rules[0].status) if rules else "client"
