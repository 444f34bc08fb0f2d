"""The models of a segment, as the model table has them."""

from ringbatch.frontend.codec.json_to_tensor import shown
from ringbatch.frontend.codec.model_address import OF_VERSION, address, no_such_model
from ringbatch.frontend.generation.text_generator import TextGenerator
from ringbatch.frontend.request.served_model import ServedModel
from ringbatch.frontend.texts.tokenizing import TextModel
from ringbatch.frontend.v1.forwarded import Origins
from ringbatch.frontend.v1.protocol import V1Model
from ringbatch.frontend.v2.protocol import V2Model
from ringbatch.frontend.v2.regions import NOTHING_SHARED, Regions, SharedMemory
from ringbatch.shm.descriptors import HeaderWords, LaneWords
from ringbatch.shm.errors import ModelNotFound, ModelNotReady
from ringbatch.shm.lane import Lane
from ringbatch.shm.model_readiness import refusal
from ringbatch.shm.model_spec import SERVING, ModelSpec, defaults, version_order
from ringbatch.shm.region_registry import Registry
from ringbatch.shm.segment import Segment
from ringbatch.shm.strided_view import StridedView
from ringbatch.shm.tallies import Tallies


class Models:
    """The models of a segment that serve.

    The model table may change at any time. What is here follows it before each request, which
    takes one load from memory while it has not, and says so in a word of the lane: who reads that
    knows that no more requests come for models that were in earlier tables alone.

    Attributes:
        table_number: of the model table that is followed.
        by_address: the models, by `address`.
        asking: whether any of them asks what its requests say.
        of_any_name: the model that takes predictions under any name; None without one.
        regions: what clients have registered of their memory.
        origins: of requests to models that other servers run.
        tallies: where the ends of requests are counted.
        max_in_flight: the most batches that one request may make.

    Args:
        segment: where the models are described.
        lane: of this process.
        shared: what of clients' memory requests may use.
    """

    def __init__(self, segment: Segment, lane: Lane, shared: SharedMemory = NOTHING_SHARED) -> None:
        self._segment = segment
        self._lane = lane
        self.max_in_flight = lane.capacity
        self.regions = Regions(Registry.attach(segment), shared)
        self._words = segment.words
        self._strided = StridedView(segment.memory)
        self.origins = Origins(segment.models)
        self.tallies = Tallies(segment, lane.index)
        self.of_any_name: ServedModel | None = None
        self._loads_generators = False
        self.table_number = 0
        self.asking = False
        self._is_unpublished = True
        """True while the lane does not say yet that it follows that table."""
        self._seen_word = segment.layout.lane(lane.index) + LaneWords.MODEL_TABLE
        self._known: dict[int, ServedModel] = {}
        self._defaults: dict[str, ServedModel] = {}
        self.by_address: dict[str, ServedModel] = {}

    def keep_up(self) -> None:
        """Follow the model table, and publish which table this process follows."""
        if self._words[HeaderWords.MODEL_TABLE] != self.table_number:
            self._follow()
        if self._is_unpublished:
            # What was sent before must be found by who reads the word.
            lane = self._lane
            lane.submit()
            if not lane.held_back:
                self._words[self._seen_word] = self.table_number
                self._is_unpublished = False

    def _follow(self) -> None:
        number = self._segment.read_models()
        serving = [spec for spec in self._segment.models if spec.state == SERVING]
        self._known = {spec.reference: self._model_of(spec) for spec in serving}
        self.asking = any(spec.words is not None for spec in serving)
        self._defaults = {
            name: self._known[spec.reference] for name, spec in defaults(serving).items()
        }
        self.by_address = self._defaults | {
            address(model.spec.name, model.spec.version): model for model in self._known.values()
        }
        known = self._known.values()
        of_any = (model for model in known if model.spec.forward and model.spec.forward.any_path)
        self.of_any_name = next(of_any, None)
        self._lane.divide({spec.reference: spec.account for spec in serving})
        self.table_number = number
        self._is_unpublished = True

    def _model_of(self, spec: ModelSpec) -> ServedModel:
        known = self._known.get(spec.reference)
        if known is not None and known.spec == spec:
            return known
        texts = None if spec.tokens is None else TextModel(spec, self.max_in_flight)
        if texts is not None:
            texts.load_soon()
        generator = None if spec.generator is None else TextGenerator(spec)
        if generator is not None and self._loads_generators:
            generator.load_soon()
        return ServedModel(
            spec,
            V1Model(spec, self._strided, self.max_in_flight),
            V2Model(spec, self.regions, self.max_in_flight),
            first_word=self._segment.layout.model(spec.index),
            tallies=self.tallies.of(spec.account, spec.name, spec.version),
            texts=texts,
            generator=generator,
        )

    def load_generators(self) -> None:
        """Have a thread load the tokenizers of text generators, and of those that come later.

        To be called by a process whose clients send prompts; others send tokens.
        """
        self._loads_generators = True
        for model in self._known.values():
            if model.generator is not None:
                model.generator.load_soon()

    def serves(self, model: ServedModel) -> bool:
        """Return whether a model that was found before still gets the requests for it."""
        self.keep_up()
        return self._known.get(model.reference) is model

    def refusal(self, spec: ModelSpec, now_ns: int) -> ModelNotReady:
        """Return the error of a request to a model that takes none now."""
        return refusal(self._words, self._segment.layout, spec, now_ns)

    def model(self, name: str, version: str = "") -> ServedModel:
        """Return the model of that name and version; without a version the server's choice.

        Raises:
            ModelNotFound
        """
        self.keep_up()
        wanted = address(name, version)
        model = self.by_address.get(wanted)
        if model is None:
            raise self.not_found(wanted)
        return model

    def expect_known(self, name: str, version: str = "") -> None:
        """Check that a model of that name, or a model for any name, takes predictions.

        Raises:
            ModelNotFound: there is neither.
        """
        if self.of_any_name is None:
            self.model(name, version)

    @property
    def models(self) -> dict[str, ServedModel]:
        """Models that serve requests without a version, by name."""
        self.keep_up()
        return self._defaults

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """Entries of the models that serve, one for each version."""
        self.keep_up()
        return tuple(model.spec for model in self._known.values())

    @property
    def entries(self) -> tuple[ModelSpec, ...]:
        """All of the table, with what is being loaded and what retires."""
        self.keep_up()
        return self._segment.models

    def specs_of(self, name: str, version: str = "") -> tuple[ModelSpec, ...]:
        """Return the entries of a model: of that version, or of all if `version` is empty."""
        return tuple(s for s in self.specs if s.name == name and version in ("", s.version))

    def versions(self, name: str) -> list[str]:
        """Return the versions of a model that serve, the lowest first."""
        return sorted((spec.version for spec in self.specs_of(name)), key=version_order)

    def not_found(self, wanted: str) -> ModelNotFound:
        """Return the error that there is no model of that address, with the known names."""
        name, _, version = wanted.partition(OF_VERSION)
        if name in self._defaults:
            have = " and ".join(f'"{known}"' for known in self.versions(name))
            return ModelNotFound(
                f"model {shown(name)} has version {have} and no version {shown(version)}"
            )
        return no_such_model(name, self._defaults)
