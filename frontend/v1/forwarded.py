"""Requests to a model that another server runs, and the answers to them.

    {"instances": [...], "signature_name": "a"}

The list travels as it was written. So do all other members of the body, the path, the query and the
headers that are passed on. These stand before the list, in an envelope
(ringbatch.shm.forward_envelope), and decide which requests share a batch.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from ringbatch.frontend.codec.limit_messages import ANY_NUMBER
from ringbatch.frontend.codec.model_address import address
from ringbatch.frontend.codec.number_form import NumberForm
from ringbatch.frontend.codec.parse_cache import ParseCache
from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.v1.answer import RowStarts
from ringbatch.frontend.v1.request import Parsed, UntypedRequests
from ringbatch.shm.forward_envelope import KEY_BYTES, encode_envelope
from ringbatch.shm.host.json_text import Value, can_be_sliced, members
from ringbatch.shm.model_spec import Forward, ModelSpec
from ringbatch.shm.tuples import unchecked_tuple

_USUAL: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*("(instances|inputs)")[ \t\r\n]*:[ \t\r\n]*')
_REMEMBERED: Final = 256


class Origins:
    """Origins of requests to the models that other servers run: path, query and headers.

    Args:
        specs: all models; those that other servers run stay as they are while the engine runs.
    """

    def __init__(self, specs: Sequence[ModelSpec]) -> None:
        self._by_address = {
            address(spec.name, version): spec.forward
            for spec in specs
            if spec.forward is not None
            for version in ("", spec.version)
        }
        self._any = next((f for f in self._by_address.values() if f.any_path), None)

    @property
    def header_names(self) -> frozenset[bytes]:
        """The names, in lower case, of the headers that ringbatch passes on to these models."""
        forwards = self._by_address.values()
        return frozenset(name.encode() for forward in forwards for name in forward.headers)

    @property
    def any_model(self) -> bool:
        """True if another server runs a model."""
        return bool(self._by_address)

    @property
    def any_path(self) -> bool:
        """True if predictions of any model are taken."""
        return self._any is not None

    def has(self, name: str) -> bool:
        """Return whether another server runs a model of that name, or any."""
        return self.any_path or name in self._by_address

    def of(
        self, name: str, target: bytes, headers: Mapping[bytes, Sequence[bytes]]
    ) -> bytes | None:
        """Return the origin of a request; None if no other server runs its model.

        Args:
            name: of the model in the request.
            target: path and query of the request.
            headers: all values of each, by its name in lower case.
        """
        forward = self._any or self._by_address.get(name)
        return None if forward is None else origin(forward, target, headers)


def origin(forward: Forward, target: bytes, headers: Mapping[bytes, Sequence[bytes]]) -> bytes:
    """Return path and query, and the headers that are passed on, a line each as in envelopes."""
    if not forward.any_path or not target:
        _, mark, query = target.partition(b"?")
        target = forward.path.encode() + mark + query
    lines = [target]
    for name in forward.headers:
        wanted = name.encode()
        lines += [b"%b: %b" % (wanted, value) for value in headers.get(wanted, ())]
    return b"\n".join([*lines, b""])


class _ListPrefix(NamedTuple):
    """Bytes before the list of a request that has no other members.

    Attributes:
        name: of the list.
        quoted: the same in its quotes.
        front: the bytes before the list in a slot.
    """

    name: str
    quoted: bytes
    front: bytes


class ForwardedRequests(UntypedRequests):
    """Requests to one such model, and their answers.

    Args:
        spec: the model.
        forward: the model's route to its server.
        max_in_flight: the most batches that one request may make.
    """

    def __init__(self, spec: ModelSpec, forward: Forward, max_in_flight: int = ANY_NUMBER) -> None:
        super().__init__(spec, max_in_flight)
        self._usual_origin = origin(forward, b"", {})
        self._usual: ParseCache[tuple[bytes, bytes], _ListPrefix] = ParseCache(_REMEMBERED)
        self._known: ParseCache[tuple[bytes, bytes, bytes], bytes] = ParseCache(_REMEMBERED)
        self._starts = RowStarts()

    def parse(self, body: bytes | bytearray, origin: bytes | None = None) -> Parsed:
        """Read a body.

        Args:
            body: all of it.
            origin: see `origin`; None if the request has none of its own.

        Raises:
            InvalidRequest: it is no sound JSON object with a list of instances.
        """
        if origin is None:
            origin = self._usual_origin
        quick = self._quick(body, origin)
        if quick is not None:
            # Calling the class takes longer.
            return (unchecked_tuple(Part, quick),), False
        source, request, name = self.read(body)
        front = self._sealed(origin, b'{"%b":' % name.encode(), _closing(source, request, name))
        parts = self.parts(source, request[name])
        return tuple(Part(part.rows, front + part.payload, KEY_BYTES) for part in parts), False

    def _members(self, text: str) -> dict[str, Value]:
        # How large a number may be is for the other server to say.
        return members(text)

    def render(
        self, parts: Sequence[tuple[int, memoryview]], columns: bool, batch_id: str
    ) -> bytes:
        """Write an answer, as `ringbatch.frontend.v1.answer.Answers` has it.

        That each part is the sound text of a list with a value for each row, and no blanks around
        it, is what the worker has seen to (`ringbatch.engine.runtimes.upstreams.predictions`).
        """
        start = self._starts.of(batch_id)
        if len(parts) == 1:
            return start + parts[0][1] + b"}"
        elements = b",".join([text[1:-1] for _, text in parts])
        return b"%b[%b]}" % (start, elements)

    def takes_long(self, rows: int, size: int) -> bool:
        """Return False: the other server's text goes on as it came."""
        return False

    def number_form(self, rows: int, result: bytes, batch_id: str) -> NumberForm | None:
        """Return None, for the same reason."""
        return None

    def _quick(self, body: bytes | bytearray, origin: bytes) -> tuple[int, bytes, int] | None:
        """Return the `Part` of a request whose list is the only member and fits one batch.

        It is None for everything else, right or wrong.
        """
        start = body.find(b"[")
        if start < 0:
            return None
        before = bytes(body[:start])
        usual = self._usual.get((origin, before)) or self._begin(origin, before)
        if usual is None:
            return None
        name, quoted, front = usual
        if not can_be_sliced(body, quoted, start):
            return None
        try:
            request = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
        rows = len(request[name])
        if len(request) != 1 or not 0 < rows <= self._cap:
            return None
        # Behind the last bracket there is nothing but the end of the object.
        return rows, front + body[start : body.rindex(b"]") + 1], KEY_BYTES

    def _begin(self, origin: bytes, before: bytes) -> "_ListPrefix | None":
        found = _USUAL.fullmatch(before)
        if found is None:
            return None
        front = self._sealed(origin, b"{%b:" % found[1], b"}")
        beginning = _ListPrefix(found[2].decode(), found[1], front)
        self._usual.put((origin, before), beginning, len(before) + len(front))
        return beginning

    def _sealed(self, origin: bytes, opening: bytes, closing: bytes) -> bytes:
        wanted = (origin, opening, closing)
        front = self._known.get(wanted)
        if front is None:
            front = encode_envelope(*wanted)
            self._known.put(wanted, front, len(front))
        return front


def _closing(source: str, request: Mapping[str, Value], name: str) -> bytes:
    """Return the members beside the list, in the order of their names and as they were written."""
    others = [
        f",{_spelled(other)}:{source[value.start : value.end]}"
        for other, value in sorted(request.items())
        if other != name
    ]
    return f"{''.join(others)}}}".encode()


def _spelled(name: str) -> str:
    # Half of a surrogate pair has a spelling in JSON alone.
    return json.dumps(name)
