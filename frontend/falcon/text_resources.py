"""OpenAI's embeddings, reranking and TEI's classification, on Falcon: their codecs and routes."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import falcon.asgi
from falcon.asgi import Request, Response

from ringbatch.frontend.codec.outcome import Answer, outcome
from ringbatch.frontend.codec.request_timeout import HEADER as TIMEOUT_HEADER
from ringbatch.frontend.codec.request_timeout import timeout_ns_of
from ringbatch.frontend.falcon.exchange import Bodies, exchange
from ringbatch.frontend.request.apart import LARGE_BODY_BYTES, ReadApart
from ringbatch.frontend.request.calls import Body
from ringbatch.frontend.request.codec import Read
from ringbatch.frontend.request.models import Models
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.texts import classifying, openai, reranking
from ringbatch.frontend.texts.made import FORMS, TextsRendering, asked_told, read_texts
from ringbatch.frontend.texts.openai import only
from ringbatch.shm.errors import InvalidRequest, RequestError
from ringbatch.shm.model_spec import dumps
from ringbatch.shm.tallies import Protocol


def add_routes(app: falcon.asgi.App[Request, Response], service: Service, bodies: Bodies) -> None:
    """Add the endpoints.

    Args:
        app: to which.
        service: the models.
        bodies: what is taken from clients and given to them.
    """
    app.add_route(openai.PATH, Texts(service, bodies, EmbeddingsCodec))
    for path in reranking.PATHS:
        app.add_route(path, Texts(service, bodies, RerankingCodec))
    app.add_middleware(WhereServed())
    app.add_route(classifying.PATH, Classes(service, bodies, ClassifyingCodec))


class Asked:
    """What is learnt of a request as it is read.

    Attributes:
        model: for which it is, once that is known.
    """

    __slots__ = ("model",)

    def __init__(self) -> None:
        self.model: ServedModel | None = None


class TextCodec:
    """A `ringbatch.frontend.request.codec.Codec` of bodies with texts.

    Args:
        models: of this process.
    """

    protocol = Protocol.V1
    output: str
    """What a model must answer with."""
    purpose: str
    """What that is for, in messages."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def read(self, _name: str, body: Body, framing: Asked) -> Read[Answer]:
        """As in `Codec`."""
        if len(body) > LARGE_BODY_BYTES:
            models = self._models
            known = models.models
            specs = {name: dumps((known[name].spec,)).decode() for name in self.suitable()}
            value = self.purpose, specs, models.max_in_flight
            raise ReadApart(read_texts, value, partial(self._told, framing))
        read, _ = FORMS[self.purpose]
        return self._found(framing, read(body))

    def _told(self, framing: Asked, value: Any, data: Sequence[memoryview]) -> Read[Answer]:
        return self._found(framing, asked_told(self.purpose, value, data))

    @abstractmethod
    def _found(self, framing: Asked, asked: Any) -> Read[Answer]:
        """Return the request of a parsed body."""

    def meant(self, _name: str, _body: Body, framing: Asked) -> ServedModel | None:
        """As in `Codec`."""
        return framing.model

    def refusal(self, _name: str, error: RequestError) -> Answer:
        """As in `Codec`."""
        return outcome(error)

    def _model(self, name: str, framing: Asked) -> ServedModel:
        models = self._models
        suitable = self.suitable()
        name = only(suitable, name, self.purpose)
        model = models.by_address.get(name)
        if model is None:
            raise models.not_found(name)
        framing.model = model
        if not self._suits(model):
            known = ", ".join(suitable) or "none"
            raise InvalidRequest(
                f'model "{name}" is not for {self.purpose}; models for that are: {known}'
            )
        return model

    def suitable(self) -> list[str]:
        """The models that answer so."""
        return [name for name, model in self._models.models.items() if self._suits(model)]

    def _suits(self, model: ServedModel) -> bool:
        return model.texts is not None and model.spec.outputs[0].name == self.output


class EmbeddingsCodec(TextCodec):
    """OpenAI's embeddings; they are counted with V1, which is JSON as well."""

    output = "embedding"
    purpose = "embeddings"

    def _found(self, framing: Asked, asked: openai.Embeddings) -> Read[Answer]:
        model = self._model(asked.model, framing)
        openai.expect_dimensions(asked, model.spec.outputs[0].shape[0])
        rendering = TextsRendering(self.purpose, asked, asked.model or model.spec.name)
        return model, ((len(asked.given), asked.given, 0),), rendering, 0

    def refusal(self, _name: str, error: RequestError) -> Answer:
        """As in `Codec`."""
        return openai.refused(error)


class RerankingCodec(TextCodec):
    """TEI's and Cohere's reranking."""

    output = "score"
    purpose = "reranking"

    def _found(self, framing: Asked, asked: reranking.Reranking) -> Read[Answer]:
        model = self._model(asked.model, framing)
        rendering = TextsRendering(self.purpose, asked, asked.model or model.spec.name)
        return model, ((len(asked.given), asked.given, 0),), rendering, 0


class ClassifyingCodec(TextCodec):
    """TEI's classification."""

    output = classifying.OUTPUT
    purpose = "classification"

    def _found(self, framing: Asked, asked: classifying.Classifying) -> Read[Answer]:
        model = self._model(asked.model, framing)
        rendering = TextsRendering(self.purpose, asked, model.spec.outputs[0].to_json())
        return model, ((len(asked.given), asked.given, 0),), rendering, 0


class Texts:
    """One of the routes.

    Args:
        service: the models.
        bodies: as in `add_routes`.
        codec: of its bodies.
    """

    answers_only: Final = True

    def __init__(self, service: Service, bodies: Bodies, codec: Callable[[Models], Any]) -> None:
        self._service = service
        self._bodies = bodies
        self._codec = codec(service)

    @staticmethod
    def infers(_req: Request) -> Protocol:
        """How a request came."""
        return Protocol.V1

    async def on_post(self, req: Request, resp: Response) -> None:
        """The body names the model."""
        timeout_ns = timeout_ns_of(req.get_header(TIMEOUT_HEADER))
        start = self._service.pipeline.start

        def started(body: Body, reply: Any) -> Any:
            return start(self._codec, "", body, Asked(), reply, timeout_ns)

        await exchange(req, resp, self._bodies, started)


class Classes(Texts):
    """TEI's path, which elsewhere means other things: it is there while a classifier is served."""

    def expect_served(self) -> None:
        """Raise `falcon.HTTPRouteNotFound` where there is no classifier."""
        if not self._codec.suitable():
            raise falcon.HTTPRouteNotFound()


class WhereServed:
    """Falcon's middleware: where `Classes` serves nobody, its path is none, whatever the method."""

    async def process_resource(
        self, _req: Request, _resp: Response, resource: object, _params: dict[str, Any]
    ) -> None:
        """After routing."""
        if isinstance(resource, Classes):
            resource.expect_served()
