"""Texts in the forms of OpenAI, TEI and Cohere, on Falcon: their codecs and routes."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import falcon.asgi
import orjson
from falcon.asgi import Request, Response

from ringbatch.frontend.codec.outcome import Answer
from ringbatch.frontend.codec.request_timeout import HEADER as TIMEOUT_HEADER
from ringbatch.frontend.codec.request_timeout import timeout_ns_of
from ringbatch.frontend.falcon.exchange import BodySettings, exchange
from ringbatch.frontend.falcon.meant_model import meant_model
from ringbatch.frontend.request.calls import Body
from ringbatch.frontend.request.codec import Read
from ringbatch.frontend.request.models import Models
from ringbatch.frontend.request.offload import LARGE_TEXTS_BYTES, Offloaded
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.request.service import Service
from ringbatch.frontend.texts import classifying, cohere, openai, reranking, tei
from ringbatch.frontend.texts.offloaded_texts import FORMS, TextsRendering, decode_asked, read_texts
from ringbatch.frontend.texts.openai import only
from ringbatch.frontend.texts.paths import EMBEDDING, ErrorForm, errors_at
from ringbatch.frontend.texts.vectors import expect_dimensions
from ringbatch.shm.errors import InvalidRequest, RequestError
from ringbatch.shm.model_spec import dumps
from ringbatch.shm.tallies import Protocol


def add_routes(
    app: falcon.asgi.App[Request, Response], service: Service, bodies: BodySettings, version: str
) -> None:
    """Add the endpoints.

    Args:
        app: to which.
        service: the models.
        bodies: limits and codings of request and answer bodies.
        version: of ringbatch.
    """
    app.add_route(openai.PATH, TextResource(service, bodies, EmbeddingsCodec))
    app.add_route(reranking.PATH, TextResource(service, bodies, RerankingCodec))
    for path in reranking.COHERE_PATHS:
        app.add_route(path, TextResource(service, bodies, CohereRerankingCodec))
    app.add_middleware(WhereServed())
    app.add_route(classifying.PATH, TextResourceIfServed(service, bodies, ClassifyingCodec))
    app.add_route(tei.EMBED, TextResourceIfServed(service, bodies, TeiEmbeddingCodec))
    app.add_route(cohere.EMBED_V1, TextResourceIfServed(service, bodies, CohereV1EmbeddingCodec))
    app.add_route(cohere.EMBED_V2, TextResourceIfServed(service, bodies, CohereV2EmbeddingCodec))
    app.add_route(tei.INFO, Info(service, version))
    app.add_route(tei.HEALTH, TeiHealth(service))


class TextFraming:
    """Facts of a request, learnt as it is read.

    Attributes:
        model: that it is for, once that is known.
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
    """Output that a model must have."""
    purpose: str
    """Purpose of the route, in messages."""
    form: str
    """The name of its bodies and answers in `FORMS`."""
    errors: ErrorForm

    def __init__(self, models: Models) -> None:
        self._models = models

    def read(self, _name: str, body: Body, framing: TextFraming) -> Read[Answer]:
        """As in `Codec`."""
        if len(body) > LARGE_TEXTS_BYTES:
            models = self._models
            known = models.models
            specs = {name: dumps((known[name].spec,)).decode() for name in self.suitable()}
            value = self.form, specs, models.max_in_flight
            raise Offloaded(read_texts, value, partial(self._decoded, framing))
        return self._found(framing, FORMS[self.form].read(body))

    def _decoded(
        self, framing: TextFraming, value: Any, data: Sequence[memoryview]
    ) -> Read[Answer]:
        return self._found(framing, decode_asked(self.form, value, data))

    @abstractmethod
    def _found(self, framing: TextFraming, asked: Any) -> Read[Answer]:
        """Return the request of a parsed body."""

    def meant(self, _name: str, body: Body, framing: TextFraming) -> ServedModel | None:
        """As in `Codec`."""
        if framing.model is not None:
            return framing.model
        return meant_model(self._models, self.suitable(), body, LARGE_TEXTS_BYTES)

    def refusal(self, _name: str, error: RequestError) -> Answer:
        """As in `Codec`."""
        return self.errors.refused(error)

    def _model(self, name: str, framing: TextFraming) -> ServedModel:
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
        """Return the models that answer in this form."""
        return [name for name, model in self._models.models.items() if self._suits(model)]

    def _suits(self, model: ServedModel) -> bool:
        return model.texts is not None and model.spec.outputs[0].name == self.output


class EmbeddingsCodec(TextCodec):
    """OpenAI's embeddings; they are counted with V1, which is JSON as well."""

    output = EMBEDDING
    purpose = "embeddings"
    form = "openai"
    errors = errors_at(openai.PATH)
    dimensions = "dimensions"
    """The member with the number of dimensions."""

    def _found(self, framing: TextFraming, asked: Any) -> Read[Answer]:
        model = self._model(asked.model, framing)
        expect_dimensions(self.dimensions, asked.dimensions, model.spec.outputs[0].shape[0])
        rendering = TextsRendering(self.form, asked, asked.model or model.spec.name)
        return model, ((len(asked.given), asked.given, 0),), rendering, 0, 0


class TeiEmbeddingCodec(EmbeddingsCodec):
    """TEI's embeddings."""

    form = "tei"
    errors = errors_at(tei.EMBED)


class CohereV1EmbeddingCodec(EmbeddingsCodec):
    """Embeddings of Cohere's API v1."""

    form = "cohere-v1"
    errors = errors_at(cohere.EMBED_V1)
    dimensions = "output_dimension"


class CohereV2EmbeddingCodec(CohereV1EmbeddingCodec):
    """Embeddings of Cohere's API v2."""

    form = "cohere-v2"


class RerankingCodec(TextCodec):
    """TEI's reranking, and Cohere's at the same path."""

    output = "score"
    purpose = "reranking"
    form = "reranking"
    errors = errors_at(reranking.PATH)

    def _found(self, framing: TextFraming, asked: reranking.Reranking) -> Read[Answer]:
        model = self._model(asked.model, framing)
        rendering = TextsRendering(self.form, asked, asked.model or model.spec.name)
        return model, ((len(asked.given), asked.given, 0),), rendering, 0, 0


class CohereRerankingCodec(RerankingCodec):
    """Cohere's reranking."""

    errors = errors_at(reranking.COHERE_PATHS[0])


class ClassifyingCodec(TextCodec):
    """TEI's classification."""

    output = classifying.OUTPUT
    purpose = "classification"
    form = "classification"
    errors = errors_at(classifying.PATH)

    def _found(self, framing: TextFraming, asked: classifying.Classifying) -> Read[Answer]:
        model = self._model(asked.model, framing)
        rendering = TextsRendering(self.form, asked, model.spec.outputs[0].to_json())
        return model, ((len(asked.given), asked.given, 0),), rendering, 0, 0


class TextResource:
    """Resource of one route for texts: embeddings, rerank, classification and the like.

    Args:
        service: the models.
        bodies: as in `add_routes`.
        codec: makes the codec of the route's bodies.
    """

    answers_only: Final = True

    def __init__(
        self, service: Service, bodies: BodySettings, codec: Callable[[Models], Any]
    ) -> None:
        self._service = service
        self._bodies = bodies
        self._codec = codec(service)

    @staticmethod
    def infers(_req: Request) -> Protocol:
        """Return the protocol of a request."""
        return Protocol.V1

    async def on_post(self, req: Request, resp: Response) -> None:
        """Answer for the model that the body names."""
        timeout_ns = timeout_ns_of(req.get_header(TIMEOUT_HEADER))
        start = self._service.pipeline.start

        def started(body: Body, reply: Any, account: int, _in_parts: object) -> Any:
            return start(self._codec, "", body, TextFraming(), reply, timeout_ns, account)

        await exchange(req, resp, self._bodies, started)


class IfServed:
    """A path that is there while `expect_served` returns."""

    @abstractmethod
    def expect_served(self) -> None:
        """Raise `falcon.HTTPRouteNotFound` if no model is served for this path."""


class TextResourceIfServed(TextResource, IfServed):
    """A route whose path elsewhere means other things: it is there while a model suits it."""

    def expect_served(self) -> None:
        """As in `IfServed`."""
        if not self._codec.suitable():
            raise falcon.HTTPRouteNotFound()


class OfTextModels(IfServed):
    """A path about the models of texts.

    Args:
        service: the models.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def served(self) -> list[str]:
        """Return the names of the models of texts."""
        models = self._service.models
        return [name for name, model in models.items() if model.spec.tokens is not None]

    def expect_served(self) -> None:
        """As in `IfServed`."""
        if not self.served():
            raise falcon.HTTPRouteNotFound()


class Info(OfTextModels):
    """TEI's facts about a model: the one in the query, or the only one of texts.

    Args:
        service: the models.
        version: of ringbatch.
    """

    def __init__(self, service: Service, version: str) -> None:
        super().__init__(service)
        self._version = version

    async def on_get(self, req: Request, resp: Response) -> None:
        """Answer with the facts, whether the model is ready or not."""
        service, names = self._service, self.served()
        name = only(names, req.get_param("model") or "", "texts")
        if name not in names:
            raise service.not_found(name)
        found = tei.info(service.models[name].spec, service.max_in_flight, self._version)
        resp.data, resp.content_type = orjson.dumps(found), falcon.MEDIA_JSON

    on_head = on_get


class TeiHealth(OfTextModels):
    """TEI's health: that of every model."""

    async def on_get(self, _req: Request, resp: Response) -> None:
        """Answer with an empty body, or 503 with the name of the first model that is not ready."""
        self._service.expect_ready()
        resp.status = falcon.HTTP_200

    on_head = on_get


class WhereServed:
    """Falcon's middleware: 404 for any method on a path of `IfServed` that is not served now."""

    async def process_resource(
        self, _req: Request, _resp: Response, resource: object, _params: dict[str, Any]
    ) -> None:
        """Refuse a path that is not served, after routing."""
        if isinstance(resource, IfServed):
            resource.expect_served()
