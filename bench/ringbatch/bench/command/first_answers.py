"""The first answers to a measurement's requests, by which later ones are judged."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ringbatch.bench.command.settings import Settings
from ringbatch.bench.load.event_stream import EventReader, is_error, is_part
from ringbatch.bench.served.asking import Address, Reply, ask, excerpt
from ringbatch.bench.served.failures import CannotMeasure


@dataclass(frozen=True)
class FirstAnswers:
    """The first answer to each request.

    Attributes:
        bodies: of the answers, in the order of the requests.
        longest_s: how long the longest one took.
    """

    bodies: Sequence[bytes]
    longest_s: float


def first_answers(
    address: Address,
    path: str,
    requests: Sequence[bytes],
    headers: Sequence[tuple[str, str]],
    settings: Settings,
    *,
    openai: bool,
) -> FirstAnswers:
    """Ask each request once.

    Args:
        address: of the server.
        path: of the requests.
        requests: their bodies.
        headers: headers of each request.
        settings: whether answers come in events, and where requests are from.
        openai: True if events are of OpenAI's form.

    Raises:
        CannotMeasure: a request is refused, or an answer in events is none, or has no gap.
    """
    bodies, longest_s, most_parts = [], 0.0, 0
    for request in requests:
        began_s = time.monotonic()
        reply = ask(address, "POST", path, request, headers)
        longest_s = max(longest_s, time.monotonic() - began_s)
        _expect_success(reply, settings)
        if settings.stream:
            most_parts = max(most_parts, _parts_of(reply, f"{address}{path}", openai=openai))
        bodies.append(reply.body)
    if settings.stream and most_parts < 2:
        raise CannotMeasure(
            "no answer has two parts, so there is no gap between parts to measure: give a request "
            "of a longer answer with --request FILE, or measure without --stream"
        )
    return FirstAnswers(bodies, longest_s)


def _expect_success(reply: Reply, settings: Settings) -> None:
    if reply.status == 200:
        return
    made_up = settings.request is None
    which = "that was made up" if made_up else f"in {settings.request}"
    hint = "; give one with --request FILE" * made_up
    raise CannotMeasure(
        f"the request {which} is refused with status {reply.status}: {excerpt(reply.body)}{hint}"
    )


def _parts_of(reply: Reply, where: str, *, openai: bool) -> int:
    """Return the number of parts of an answer.

    Raises:
        CannotMeasure: it is no event stream, or ends with an error.
    """
    if reply.content_type.partition(";")[0].strip().lower() != "text/event-stream":
        kind = reply.content_type or "nothing that it names"
        raise CannotMeasure(
            f"--stream: {where} answers with {kind}, but it must be text/event-stream: "
            f"{excerpt(reply.body)}"
        )
    events = EventReader().take(reply.body)
    for event in events:
        if is_error(event):
            raise CannotMeasure(f"--stream: an answer ends with an error: {excerpt(event)}")
    return sum(is_part(event, openai=openai) for event in events)
