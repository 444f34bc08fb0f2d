"""The tokenizer of one model, in a process that clients send texts to.

Short texts are made tokens of at once. What is longer, and all that comes before the tokenizer is
loaded, is done by a thread, so that nobody else waits for it.
"""

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from ringbatch.frontend.codec.limit_messages import ANY_NUMBER, expect_batches, too_many_parts
from ringbatch.frontend.codec.payload import Part, SlotPart
from ringbatch.frontend.texts.loading import LoadedOnce, Unusable
from ringbatch.frontend.texts.rows import GivenTexts, Ids, Shape, Text, TokenizedTexts, given
from ringbatch.shm.errors import InvalidRequest, how_to_install
from ringbatch.shm.frame import Frame
from ringbatch.shm.model_spec import ModelSpec
from ringbatch.shm.texts import SECOND, Tokens

QUICK_SIZE: Final = 4096
"""The largest quick request: a tokenizer takes 0.3 µs for a character, and 5 µs for a text."""
CHARACTERS_A_TOKEN: Final = 256
"""Characters of a text that are read for each token that the model takes. So no client waits for a
book of which a page counts."""


class Tokenized(NamedTuple):
    """A request's texts as tokens.

    Attributes:
        parts: what goes into slots.
        row_order: for each row in them, its place in the request; None if that is the order.
    """

    parts: tuple[Part, ...]
    row_order: list[int] | None


class TextModel:
    """Tokenization of the texts for one model.

    Args:
        spec: the model, with `tokens`.
        max_in_flight: the most batches that one request may make.
    """

    def __init__(self, spec: ModelSpec, max_in_flight: int = ANY_NUMBER) -> None:
        assert spec.tokens is not None, "a model of texts"
        self.tokens = spec.tokens
        self._cap = spec.cap
        self._max_in_flight = max_in_flight
        self._frame = Frame(spec.inputs)
        self._shape = Shape(spec)
        self._tokenizer = LoadedOnce(spec.name, partial(Tokenizer, spec.tokens))

    @property
    def obstacle(self) -> str:
        """Why no text can be answered, in words for clients; empty if no reason is known."""
        return self._tokenizer.obstacle

    def given(self, parts: Sequence[SlotPart]) -> GivenTexts:
        """Return the texts of a request.

        Raises:
            InvalidRequest: a text is not UTF-8.
            RequestTooLarge: the texts make too many batches.
        """
        expect_batches(sum(rows for rows, _, _ in parts), self._cap, self._max_in_flight)
        return given(parts, self._frame)

    def is_quick(self, asked: GivenTexts) -> bool:
        """Return whether `tokenized` takes less time than a client would notice."""
        if isinstance(asked, TokenizedTexts):
            return True
        return self._tokenizer.value is not None and asked.size <= QUICK_SIZE

    def tokenized(self, asked: GivenTexts, *, in_order: bool = False) -> Tokenized:
        """Return the texts of a request as tokens; in any thread.

        Args:
            asked: the request's.
            in_order: True if rows must stay in their order, at the price of more parts.

        Raises:
            InvalidRequest: a text is too long, or has no tokens.
            RequestTooLarge: they make more batches than may be under way.
            ModelNotReady: the tokenizer cannot be loaded.
        """
        if isinstance(asked, TokenizedTexts):
            return Tokenized(asked.parts, asked.row_order)
        rows = self._rows(asked)
        asked.counts = [len(row) for row in rows]
        row_order: list[int] | None
        if in_order or len(rows) == 1:
            parts, row_order = self._shape.in_order(rows), None
        else:
            parts, row_order = self._shape.by_length(rows)
        # By their lengths they may make more batches than their number.
        if len(parts) > self._max_in_flight:
            raise too_many_parts(len(rows), len(parts), self._max_in_flight)
        return Tokenized(tuple(parts), row_order)

    def load(self) -> "Tokenizer":
        """Load the tokenizer, if that is not done; by any thread.

        Raises:
            ModelNotReady: it cannot be loaded; the log says why.
        """
        return self._tokenizer.load()

    def load_soon(self) -> None:
        """Have a thread load it; see `LoadedOnce.load_soon`."""
        self._tokenizer.load_soon(thread)

    def _rows(self, asked: GivenTexts) -> list[Ids]:
        if asked.ids:
            cut = bool(asked.truncate)
            return [self._checked(ids, number, cut) for number, ids in enumerate(asked.ids)]
        truncate = self.tokens.truncate if asked.truncate is None else asked.truncate
        texts, tokenizer = asked.texts, self.load()
        if 0 < asked.document_tokens < self.tokens.limit:
            texts = tokenizer.with_short_documents(texts, asked.document_tokens)
        return tokenizer.rows(texts, truncate=truncate)

    def _checked(self, ids: Sequence[int], number: int, truncate: bool) -> Ids:
        limit, vocabulary = self.tokens.limit, self.tokens.vocabulary
        if truncate and len(ids) > limit:
            ids = self.load().cut(ids)
        if not 0 < len(ids) <= limit:
            raise InvalidRequest(
                f"input {number} has {len(ids)} tokens; this model takes from 1 to {limit}"
            )
        wrong = next((token for token in ids if not 0 <= token < vocabulary), None)
        if wrong is not None:
            raise InvalidRequest(
                f"input {number} has the token {wrong}; this model's are from 0 to {vocabulary - 1}"
            )
        return np.array(ids, np.int32)


class Tokenizer:
    """A tokenizer.json in use.

    Args:
        tokens: what a model says of it.

    Raises:
        Unusable: it cannot be read, or is another by now.
    """

    def __init__(self, tokens: Tokens) -> None:
        try:
            content = Path(tokens.path).read_bytes()
        except OSError as error:
            raise Unusable(f"{tokens.path}: cannot be read: {error.strerror}") from None
        if hashlib.blake2b(content, digest_size=16).hexdigest() != tokens.digest:
            raise Unusable(
                f"{tokens.path}: is another by now than the one that the model was loaded with; "
                "ringbatch reload takes what is there now"
            )
        tokenizer = tokenizer_library().Tokenizer.from_buffer(content)
        tokenizer.no_padding()
        truncation = tokenizer.truncation or {}
        tokenizer.enable_truncation(tokens.limit, direction=truncation.get("direction", "right"))
        self._tokenizer = tokenizer
        self._encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
        self._keeps_end = truncation.get("direction") == "left"
        self._limit = tokens.limit
        self._most_characters = tokens.limit * CHARACTERS_A_TOKEN
        self._pairs = tokens.pairs
        self._added: int = tokenizer.num_special_tokens_to_add(tokens.pairs)

    def rows(self, texts: Sequence[Text], *, truncate: bool) -> list[Ids]:
        """Return the tokens of each text.

        Raises:
            InvalidRequest: one is too long, and not to be truncated, or has none at all.
        """
        found = self._encode(
            [self._cut(text, number, truncate) for number, text in enumerate(texts)]
        )
        rows = []
        for number, encoding in enumerate(found):
            ids = encoding.ids
            if len(ids) >= self._limit and not truncate and encoding.overflowing:
                raise InvalidRequest(self._too_long(number, encoding))
            if not ids:
                raise InvalidRequest(f"text {number} is empty: it has no tokens")
            row = np.array(ids, np.int32)
            if self._pairs:
                row |= np.array(encoding.type_ids, np.int32) * np.int32(SECOND)
            rows.append(row)
        return rows

    def with_short_documents(self, texts: Sequence[Text], most: int) -> list[Text]:
        """Return the pairs with their second texts cut to about `most` tokens.

        The model takes more tokens than that.
        """
        pairs = [text for text in texts if isinstance(text, tuple)]
        documents = [document[: most * CHARACTERS_A_TOKEN] for _, document in pairs]
        # `encode_batch_fast` is quicker, but returns no offsets.
        encodings = self._tokenizer.encode_batch(documents, add_special_tokens=False)
        return [
            (query, document[: encoding.offsets[most - 1][1]])
            if len(encoding.ids) > most
            else (query, document)
            for (query, _), document, encoding in zip(pairs, documents, encodings, strict=True)
        ]

    def cut(self, ids: Sequence[int]) -> Sequence[int]:
        """Return as many of a client's own tokens as the model takes."""
        return ids[-self._limit :] if self._keeps_end else ids[: self._limit]

    def _cut(self, text: Text, number: int, truncate: bool) -> Text:
        """Return the part of a long text that the most tokens of the model can come from."""
        longest = len(text) if isinstance(text, str) else max(map(len, text))
        if longest <= self._most_characters:
            return text
        if not truncate:
            raise InvalidRequest(
                f"text {number} has {longest} characters, but this model takes at most "
                f"{self._limit} tokens; send a shorter one, or have the rest left out with truncate"
            )
        if isinstance(text, str):
            return self._end_or_start(text)
        query, other = text
        return self._end_or_start(query), self._end_or_start(other)

    def _end_or_start(self, text: str) -> str:
        most = self._most_characters
        return text[-most:] if self._keeps_end else text[:most]

    def _too_long(self, number: int, encoding: Any) -> str:
        count = len(encoding.ids)
        count += sum(len(rest.ids) - self._added for rest in encoding.overflowing)
        found = f"more than {self._limit}" if self._pairs else str(count)
        return (
            f"text {number} has {found} tokens, but this model takes at most {self._limit}; send a "
            "shorter one, or have the rest left out with truncate"
        )


def tokenizer_library() -> Any:
    """Return the package tokenizers.

    Raises:
        Unusable: it is not installed.
    """
    # Its own threads would take the cores of the workers, and mind being forked.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise Unusable(
            f"texts need the module tokenizers, which is not installed; {how_to_install('text')}"
        ) from None
    return tokenizers


@cache
def thread() -> Executor:
    """Return the one thread of this process that tokenizes long texts."""
    return ThreadPoolExecutor(1, "tokens")
