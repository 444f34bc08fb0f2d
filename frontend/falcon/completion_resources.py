"""OpenAI's completions and chat completions on Falcon: their codec and routes."""

import secrets
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import falcon.asgi
from falcon.asgi import Request, Response

from ringbatch.frontend.codec.outcome import JSON, Answer
from ringbatch.frontend.codec.payload import Part
from ringbatch.frontend.codec.request_context import RawHeaders
from ringbatch.frontend.codec.request_timeout import HEADER as TIMEOUT_HEADER
from ringbatch.frontend.codec.request_timeout import timeout_ns_of
from ringbatch.frontend.falcon.exchange import BodySettings, exchange
from ringbatch.frontend.falcon.meant_model import meant_model
from ringbatch.frontend.falcon.text_resources import IfServed
from ringbatch.frontend.generation.choice_text import ChoiceText
from ringbatch.frontend.generation.completion_bodies import Completion, read, seed_of
from ringbatch.frontend.generation.completion_writer import CompletionWriter
from ringbatch.frontend.generation.offloaded_prompts import decode_prompts, read_prompts
from ringbatch.frontend.generation.prompts import END, Generated, Tokens
from ringbatch.frontend.request.calls import Body, Reply, RequestHandle
from ringbatch.frontend.request.codec import Read
from ringbatch.frontend.request.models import Models
from ringbatch.frontend.request.offload import Offloaded
from ringbatch.frontend.request.parts_task import EnoughParts, InParts
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.texts import openai
from ringbatch.frontend.texts.openai import only
from ringbatch.shm.errors import InvalidRequest, RequestError
from ringbatch.shm.host.background_tasks import in_thread
from ringbatch.shm.model_spec import dumps
from ringbatch.shm.tallies import Protocol
from ringbatch.shm.texts import MAX_TOKENS, SEED

LARGE_PROMPT_BYTES: Final = 1 << 13
"""The largest body whose prompt the event loop reads: a tokenizer takes 0.3 µs for a character."""
_NUMBER_BYTES: Final = 12


def add_routes(
    app: falcon.asgi.App[Request, Response], service: Service, bodies: BodySettings
) -> None:
    """Add the endpoints.

    Args:
        app: to which.
        service: the models.
        bodies: limits and codings of request and answer bodies.
    """
    app.add_route(openai.COMPLETIONS, CompletionResource(service, bodies, chat=False))
    app.add_route(openai.CHAT_COMPLETIONS, CompletionResource(service, bodies, chat=True))


class CompletionFraming:
    """Facts of a request, learnt as it is read.

    Attributes:
        headers: of the request.
        model: that it is for, once that is known.
        writer: of its answer, once it is read.
    """

    __slots__ = ("headers", "model", "writer")

    def __init__(self, headers: RawHeaders) -> None:
        self.headers = headers
        self.model: ServedModel | None = None
        self.writer: CompletionWriter | None = None


class CompletionCodec:
    """A `ringbatch.frontend.request.codec.Codec` of completions; they are counted with V1.

    Args:
        models: of this process.
        chat: True for chat completions.
    """

    protocol = Protocol.V1

    def __init__(self, models: Models, *, chat: bool) -> None:
        self._models = models
        self._chat = chat

    def read(self, _name: str, body: Body, framing: CompletionFraming) -> Read[Generated]:
        """As in `Codec`."""
        if len(body) > LARGE_PROMPT_BYTES:
            known = self._models.models
            specs = {name: dumps((known[name].spec,)).decode() for name in self.suitable()}
            raise Offloaded(read_prompts, (self._chat, specs), partial(self._decoded, framing))
        asked = read(body, chat=self._chat)
        model = self._model(asked.model, framing)
        assert model.generator is not None, "it is suitable"
        return self._found(framing, model, asked, model.generator.prompts_of(asked))

    def _decoded(
        self, framing: CompletionFraming, value: Any, data: Sequence[memoryview]
    ) -> Read[Generated]:
        asked, prompts = decode_prompts(value, data)
        return self._found(framing, self._model(asked.model, framing), asked, prompts)

    def meant(self, _name: str, body: Body, framing: CompletionFraming) -> ServedModel | None:
        """As in `Codec`."""
        if framing.model is not None:
            return framing.model
        return meant_model(self._models, self.suitable(), body, LARGE_PROMPT_BYTES)

    def refusal(self, _name: str, error: RequestError) -> Generated:
        """As in `Codec`."""
        return openai.refused(error)

    def suitable(self) -> list[str]:
        """Return the models that generate texts."""
        return [name for name, model in self._models.models.items() if model.generator is not None]

    def _model(self, name: str, framing: CompletionFraming) -> ServedModel:
        models, suitable = self._models, self.suitable()
        name = only(suitable, name, "completions")
        model = models.by_address.get(name)
        if model is None:
            raise models.not_found(name)
        framing.model = model
        if model.generator is None:
            known = ", ".join(suitable) or "none"
            raise InvalidRequest(
                f'model "{name}" is not for completions; models for that are: {known}'
            )
        return model

    def _found(
        self,
        framing: CompletionFraming,
        model: ServedModel,
        asked: Completion,
        prompts: list[list[int]],
    ) -> Read[Generated]:
        generator = model.generator
        assert generator is not None, "it is suitable"
        values = generator.options(asked)
        parts: list[Part] = []
        choices: list[ChoiceText] = []
        for ids in prompts:
            most = generator.max_tokens(asked, len(ids))
            for number in range(asked.n):
                own = values | {MAX_TOKENS: most}
                if SEED in own:
                    own[SEED] = seed_of(int(own[SEED]), number)
                parts.append(generator.prompts.part(ids, own, framing.headers))
                ends, decoder = generator.generator.ends, generator.decoder()
                choices.append(ChoiceText(most, ends, decoder, asked.stops))
        framing.writer = CompletionWriter(
            asked,
            asked.model or model.spec.name,
            sum(map(len, prompts)),
            choices,
            number=secrets.token_hex(_NUMBER_BYTES),
            created_s=int(time.time()),
        )
        return model, tuple(parts), generator.rendering, 0, 0


class AnswerWriting:
    """Adapter between the pipeline, which gives tokens, and the exchange, which takes answers.

    Args:
        framing: of the request; has the writer once it is read.
        reply: takes the end of the answer, or all of it.
        in_parts: takes events.
    """

    def __init__(self, framing: CompletionFraming, reply: Reply, in_parts: InParts[Answer]) -> None:
        self._framing = framing
        self._reply = reply
        self._in_parts = in_parts

    def joins(self) -> bool:
        """Return whether the client gets one answer; the request has been read."""
        return not self._writer.streams

    def take(self, number: int, part: Generated) -> None:
        """Take a part of a choice; called by the pipeline."""
        writer = self._writer
        assert isinstance(part, Tokens), "a part has tokens"
        self._pass_on(writer.take(number, part.ids))
        if writer.has_enough(number):
            raise EnoughParts

    def end(self, number: int) -> None:
        """Take the end of one of several choices; called by the pipeline."""
        self._pass_on(self._writer.end_choice(number))

    def reply(self, found: Generated) -> None:
        """Take the end of all choices, or an error; called by the pipeline."""
        if not isinstance(found, Tokens):
            self._reply(found)
            return
        texts = self._writer.end()
        if not self._writer.streams:
            self._reply((200, texts[0], JSON))
            return
        try:
            self._pass_on(texts)
        except RequestError as error:
            self._reply(openai.refused(error))
        else:
            self._reply(self._in_parts.end)

    def _pass_on(self, events: Iterable[bytes]) -> None:
        for event in events:
            self._in_parts.on_part((200, event, JSON))

    @property
    def _writer(self) -> CompletionWriter:
        writer = self._framing.writer
        assert writer is not None, "the request was read"
        return writer


class CompletionResource(IfServed):
    """Resource of completions or of chat completions, present while a text generator is served.

    Args:
        service: the models.
        bodies: as in `add_routes`.
        chat: True for chat completions.
    """

    answers_only: Final = True

    def __init__(self, service: Service, bodies: BodySettings, *, chat: bool) -> None:
        self._service = service
        self._bodies = bodies
        self._codec = CompletionCodec(service, chat=chat)

    def expect_served(self) -> None:
        """As in `IfServed`."""
        if not self._codec.suitable():
            raise falcon.HTTPRouteNotFound()

    @staticmethod
    def infers(_req: Request) -> Protocol:
        """Return the protocol of a request."""
        return Protocol.V1

    async def on_post(self, req: Request, resp: Response) -> None:
        """Answer for the model that the body names."""
        timeout_ns = timeout_ns_of(req.get_header(TIMEOUT_HEADER))
        await self._load()
        framing = CompletionFraming(req.scope["headers"])

        def start(
            body: Body, reply: Reply, account: int, in_parts: InParts[Answer] | None
        ) -> RequestHandle | None:
            assert in_parts is not None, "every answer comes in parts"
            writing = AnswerWriting(framing, reply, in_parts)
            return self._service.pipeline.start(
                self._codec,
                "",
                body,
                framing,
                writing.reply,
                timeout_ns,
                account,
                in_parts=InParts(
                    partial(writing.take, 0),
                    END,
                    limits=in_parts.limits,
                    joins=writing.joins,
                    stalled_s=in_parts.stalled_s,
                    several=writing,
                ),
            )

        await exchange(req, resp, self._bodies, start, events=True, whole_is_event=False)

    async def _load(self) -> None:
        """Load the tokenizers that are not loaded yet, so that the event loop need not."""
        for model in [*self._service.models.values()]:
            generator = model.generator
            if generator is not None and not generator.is_loaded:
                await in_thread(generator.try_to_load)
