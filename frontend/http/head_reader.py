"""Reader of heads on the fast lane, with a memory of their lines.

Clients repeat most lines of a head. Gateways and tracers give each request lines of its own: an id,
a trace, the client's address. So the reader cuts a head in two:

    kept      the request line, and the headers that decide how a request is served
    cut out   headers that ringbatch does not read, and those in `VARYING`

The memory holds the meaning of kept lines, as `HeadParser` parsed them once. The reader reads the
values of `VARYING` each time. It cuts out only whole lines of visible ASCII, blanks and tabs. Every
other line stays, so that the parser decides about it. Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ringbatch.frontend.codec.parse_cache import ParseCache
from ringbatch.frontend.http.head import VARYING, RequestHead, head_of, head_with
from ringbatch.frontend.http.head_framing import MAX_HEADERS
from ringbatch.frontend.http.head_meaning import SERVING, HeadParser, Meaning
from ringbatch.frontend.security.accounts import FORWARDED, UNKNOWN_PEER, Accounts, Peer
from ringbatch.frontend.security.api_keys import ApiKeys
from ringbatch.frontend.security.cors import SharedWith
from ringbatch.frontend.v1.forwarded import Origins

_REMEMBERED: Final = 1024
_MOST_CUT: Final = 64
"""The most lines that are cut out of one head."""
_MOST_PIECES: Final = 3 * _MOST_CUT + 1
_MOST_KEPT: Final = MAX_HEADERS + 2 - _MOST_CUT
_FORWARDED: Final = re.compile(rb"\r\n(?i:%b):[ \t]*([^\r\n]*)" % re.escape(FORWARDED))
_NAME: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"


class HeadReader:
    """A reader of heads, with a memory of their lines.

    Args:
        max_request_bytes: bytes of the longest body that the fast lane takes.
        compress_answers: whether Accept-Encoding matters.
        keys: the API keys of which a client must send one; None if clients need no key.
        origins: of requests to models that other servers run.
        cors_origins: origins whose pages may read answers.
        accounts: of clients; by default all requests are nobody's.
    """

    def __init__(
        self,
        max_request_bytes: int,
        *,
        compress_answers: bool = False,
        keys: ApiKeys | None = None,
        origins: Origins | None = None,
        cors_origins: Sequence[str] = (),
        accounts: Accounts | None = None,
    ) -> None:
        self._max_request_bytes = max_request_bytes
        self._accounts = accounts or Accounts(on=False)
        origins = origins or Origins(())
        self._parser = HeadParser(
            keys,
            origins,
            SharedWith(cors_origins),
            self._accounts,
            compress_answers=compress_answers,
        )
        self._split = _cutter(origins.header_names).split
        self._known: ParseCache[bytes, Meaning] = ParseCache(_REMEMBERED)

    def forget(self) -> None:
        """Forget all heads, because the keys have changed."""
        self._known.clear()

    def read(self, text: bytes, peer: Peer = UNKNOWN_PEER) -> RequestHead | None:
        """Read a head.

        Args:
            text: the head as it came, with its empty line.
            peer: the other end of its connection.

        Returns:
            None if the fast lane does not take the request.
        """
        # A repeated sequence: kept lines, a name or None, its value or None. Kept lines end it.
        pieces = self._split(text)
        kept = b"".join(pieces[::3])
        values = _values(pieces)
        meaning = self._known.get(kept)
        if meaning is None or values is None or len(pieces) > _MOST_PIECES:
            return self._parse(text, kept, values, peer)
        account = peer.account
        if meaning.account or peer.is_proxy:
            account = self._account(meaning, peer, text)
        return head_with(text, meaning, values, self._max_request_bytes, account)

    def _account(self, meaning: Meaning, peer: Peer, text: bytes) -> int:
        """Return the account word of a request; its lines are known to be sound."""
        return self._accounts.word(meaning.account, peer, partial(_FORWARDED.findall, text))

    def _parse(
        self, text: bytes, kept: bytes, values: Mapping[bytes, bytes] | None, peer: Peer
    ) -> RequestHead | None:
        parsed = self._parser.parse(text)
        if parsed is None:
            return None
        headers, meaning = parsed
        if (
            values is not None
            # A varying header in a kept line would count beside those of the next head.
            and all(len(headers.get(name, ())) == (name in values) for name in VARYING)
            and kept.count(b"\r\n") <= _MOST_KEPT
        ):
            self._known.put(kept, meaning, len(kept))
        account = peer.account
        if meaning.account or peer.is_proxy:
            account = self._account(meaning, peer, text)
        return head_of(text, headers, meaning, self._max_request_bytes, account)


def _values(pieces: list[bytes | Any]) -> dict[bytes, bytes] | None:
    """Return the values of headers in `VARYING`, by name; None if one comes twice."""
    values: dict[bytes, bytes] = {}
    for at in range(1, len(pieces), 3):
        name: bytes | None = pieces[at]
        if name is not None:
            name = name.lower()
            if name in values:
                return None
            values[name] = pieces[at + 1]
    return values


def _cutter(forwarded: frozenset[bytes]) -> re.Pattern[bytes]:
    """Return a pattern of the lines that are cut out of a head.

    Args:
        forwarded: names of headers that model servers read; their lines stay.
    """
    varying = rb"(%b):[ \t]*([!-~]*)[ \t]*" % _any_of(VARYING - forwarded)
    kept = _any_of(SERVING | VARYING | forwarded)
    unread = rb"(?!(?:%b):)%b:[\t -~]*" % (kept, _NAME)
    return re.compile(rb"\r\n(?:%b|%b)(?=\r\n)" % (varying, unread))


def _any_of(names: Iterable[bytes]) -> bytes:
    """Return a pattern of names in any case. The first letter selects the names to compare."""
    by_letter: dict[bytes, list[bytes]] = {}
    for name in sorted(names):
        by_letter.setdefault(name[:1], []).append(re.escape(name[1:]))
    return b"|".join(
        b"[%b%b](?i:%b)" % (letter, letter.upper(), b"|".join(rests))
        for letter, rests in by_letter.items()
    )
