"""Chains of models: fit of their steps' tensors, table entries, safety in changes. Pure.

A chain stays as it was made: a step's model can only be replaced by a model with the same inputs
and outputs. So requests under way fit any worker that runs their next step.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ringbatch.engine.config.chained import OF_REQUEST, ChainConfig, StepConfig
from ringbatch.engine.supervisor.model_versions import Entries
from ringbatch.shm.chain import REQUEST, Chain, Source, Step
from ringbatch.shm.model_spec import LOADING, SERVING, ModelSpec, State, defaults
from ringbatch.shm.tensor import ANY, Tensor

PLATFORM = "chain"
"""Name of a chain's runtime in the model table."""


class Unfit(Exception):
    """The steps of a chain do not fit together, or a change would break it; the text says why."""


class _Given(NamedTuple):
    """A tensor that is available when a step runs.

    Attributes:
        source: where it comes from; the place is among all outputs of the step.
        tensor: its description.
        giver: the name of its source in messages.
    """

    source: Source
    tensor: Tensor
    giver: str


@dataclass(frozen=True, slots=True)
class Fitted:
    """A chain whose steps fit, with its inputs and outputs."""

    chain: Chain
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def fitted(config: ChainConfig, entries: Iterable[ModelSpec]) -> Fitted:
    """Return a chain of models that serve.

    Args:
        config: of the chain.
        entries: of the table.

    Raises:
        Unfit: the steps do not fit; the text says why.
    """
    return _Fitting(config, [*entries]).done()


class _Fitting:
    def __init__(self, config: ChainConfig, entries: Sequence[ModelSpec]) -> None:
        self._config = config
        self._requested: dict[str, _Given] = {}
        """Inputs of the chain itself, by name."""
        self._named: dict[str, _Given] = {}
        """Outputs of steps, by name; of one name the latest."""
        self._of_step: dict[str, _Given] = {}
        """The same, with the model's name in front."""
        self._specs = [self._spec(n, step, entries) for n, step in enumerate(config.steps)]
        self._sources: list[list[Source]] = []

    def done(self) -> Fitted:
        """Return the chain, as `fitted`."""
        before: list[_Given] = []
        for number, (step, spec) in enumerate(zip(self._config.steps, self._specs, strict=True)):
            self._sources.append(self._taken(number, step, spec, before))
            before = self._gives(number, step, spec)
        returned = [self._returned(name) for name in self._config.returns] or [
            (given, name) for given, name in zip(before, self._last_names(), strict=True)
        ]
        called = [name for _, name in returned]
        for name in called:
            if called.count(name) > 1:
                raise Unfit(
                    f"returns: {name!r} is there twice; call one otherwise, as in outputs = "
                    f"{{ {name} = ... }} of its step"
                )
        answers = [given.source for given, _ in returned]
        steps = self._kept_by(answers)
        outputs = tuple(
            Tensor(
                name,
                given.tensor.datatype.name,
                given.tensor.shape,
                given.tensor.labels,
                padding=given.tensor.padding,
            )
            for given, name in returned
        )
        place_of = [{number: place for place, number in enumerate(s.keeps)} for s in steps]
        last = len(steps) - 1

        def placed(source: Source) -> Source:
            step, output = source
            return source if step in (REQUEST, last) else Source(step, place_of[step][output])

        chain = Chain(
            tuple(replace(s, sources=tuple(map(placed, s.sources))) for s in steps),
            tuple(map(placed, answers)),
        )
        return Fitted(chain, tuple(given.tensor for given in self._requested.values()), outputs)

    def _title(self, number: int) -> str:
        return f"step {number + 1} ({self._config.steps[number].model})"

    def _spec(self, number: int, step: StepConfig, entries: Sequence[ModelSpec]) -> ModelSpec:
        spec = serving(step.model, step.version, entries)
        title = self._title(number)
        if spec is None:
            version = f" version {step.version}" if step.version else ""
            raise Unfit(f"{title}: no model {step.model!r}{version} serves")
        if spec.chain is not None:
            raise Unfit(f"{title} is a chain itself; put its steps here in its place")
        if spec.places:
            raise Unfit(f"{title} works in steps, and a chain needs the whole answer of each step")
        if spec.tokens is not None:
            raise Unfit(
                f"{title} takes texts that are tokenized before they come to it; such a model is "
                "asked by itself, and a chain tokenizes in a step of its own"
            )
        if spec.words is not None:
            raise Unfit(
                f"{title} takes the contexts of requests (its predict takes request), which steps "
                "of chains do not get; have it do without"
            )
        if not spec.typed or spec.forward is not None:
            raise Unfit(
                f"{title} declares no inputs and outputs; between steps there are tensors, so the "
                "model of each must declare its own"
            )
        for kind, names, tensors in (
            ("input", step.inputs, spec.inputs),
            ("output", step.outputs, spec.outputs),
        ):
            for name, _ in names:
                if name not in {tensor.name for tensor in tensors}:
                    raise Unfit(f"{title} has no {kind} {name!r}; there is: {_listed(tensors)}")
        return spec

    def _taken(
        self, number: int, step: StepConfig, spec: ModelSpec, before: list[_Given]
    ) -> list[Source]:
        """Return the source of each input of a step."""
        names = dict(step.inputs)
        if not number:
            return [
                self._asked(0, tensor, names.get(tensor.name, tensor.name))
                for tensor in spec.inputs
            ]
        found = {name: self._named_so(number, spec, name, source) for name, source in names.items()}
        left = [tensor for tensor in spec.inputs if tensor.name not in found]
        last = {name: given for given, name in zip(before, self._names(number - 1), strict=True)}
        by_name = {tensor.name: last[tensor.name] for tensor in left if tensor.name in last}
        if not by_name and len(left) == len(before):
            by_name = {t.name: given for t, given in zip(left, before, strict=True)}
        for tensor in left:
            earlier = self._named.get(tensor.name) or self._requested.get(tensor.name)
            given = by_name.get(tensor.name) or earlier
            if given is None:
                raise Unfit(
                    f"{self._title(number)}: nothing gives its input {tensor.name!r}; name one of "
                    f"{self._there_is()}, or a tensor of the request as {OF_REQUEST}NAME, in "
                    f"inputs = {{ {tensor.name} = ... }}"
                )
            found[tensor.name] = given
        for tensor in spec.inputs:
            self._expect_fit(number, tensor, found[tensor.name])
        return [found[tensor.name].source for tensor in spec.inputs]

    def _named_so(self, number: int, spec: ModelSpec, name: str, source_name: str) -> _Given:
        """Return the tensor that the configuration names for an input."""
        (tensor,) = (tensor for tensor in spec.inputs if tensor.name == name)
        given = (
            self._of_step.get(source_name)
            or self._named.get(source_name)
            or self._requested.get(source_name)
        )
        if given is None and source_name.startswith(OF_REQUEST):
            bare = source_name.removeprefix(OF_REQUEST)
            if bare not in self._requested:
                self._ask(tensor, bare)
            given = self._requested[bare]
        if given is None:
            raise Unfit(
                f"{self._title(number)}: its input {name!r} is to be {source_name!r}, but there is "
                f"{self._there_is()}, or a tensor of the request as {OF_REQUEST}NAME"
            )
        return given

    def _asked(self, number: int, tensor: Tensor, source_name: str) -> Source:
        bare = source_name.removeprefix(OF_REQUEST)
        if bare in self._requested:
            raise Unfit(f"{self._title(number)}: two of its inputs are to be {bare!r}")
        return self._ask(tensor, bare)

    def _ask(self, tensor: Tensor, name: str) -> Source:
        """Add a tensor to the chain's own inputs, and return its source."""
        source = Source(REQUEST, len(self._requested))
        own = Tensor(name, tensor.datatype.name, tensor.shape, default=tensor.default)
        self._requested[name] = _Given(source, own, "the request")
        return source

    def _expect_fit(self, number: int, tensor: Tensor, given: _Given) -> None:
        other = given.tensor
        fits = tensor.datatype == other.datatype and len(tensor.shape) == len(other.shape)
        sizes = zip(tensor.shape, other.shape, strict=False)
        if not fits or any(want not in (ANY, got) for want, got in sizes):
            raise Unfit(
                f"{self._title(number)}: its input {tensor.name!r} is {_described(tensor)}, but "
                f"{given.giver} gives {other.name!r} as {_described(other)}"
            )

    def _names(self, number: int) -> list[str]:
        """Return the names that the chain has for the outputs of a step."""
        called = dict(self._config.steps[number].outputs)
        return [called.get(t.name, t.name) for t in self._specs[number].outputs]

    def _last_names(self) -> list[str]:
        return self._names(len(self._specs) - 1)

    def _gives(self, number: int, step: StepConfig, spec: ModelSpec) -> list[_Given]:
        found = []
        names = self._names(number)
        for place, (tensor, name) in enumerate(zip(spec.outputs, names, strict=True)):
            if names.count(name) > 1:
                raise Unfit(f"{self._title(number)}: two of its outputs are called {name!r}")
            given = _Given(Source(number, place), tensor, self._title(number))
            self._named[name] = self._of_step[f"{step.model}.{name}"] = given
            found.append(given)
        return found

    def _returned(self, name: str) -> tuple[_Given, str]:
        given = self._of_step.get(name) or self._named.get(name)
        if given is None:
            raise Unfit(f"returns: there is no {name!r}; there is {self._there_is()}")
        bare = name if name in self._named else name.rpartition(".")[2]
        return given, bare

    def _there_is(self) -> str:
        return ", ".join(map(repr, self._named))

    def _kept_by(self, answers: Sequence[Source]) -> list[Step]:
        """Return the steps, each with the outputs that it keeps."""
        last = len(self._specs) - 1
        taken = {source for sources in self._sources for source in sources} | {*answers}
        steps = []
        for number, spec in enumerate(self._specs):
            keeps = tuple(sorted(source.place for source in taken if source.step == number))
            if not keeps:
                raise Unfit(f"{self._title(number)}: nothing takes what it gives")
            step = self._config.steps[number]
            steps.append(
                Step(
                    step.model,
                    step.version,
                    spec.inputs,
                    spec.outputs,
                    spec.batched,
                    tuple(self._sources[number]),
                    () if number == last else keeps,
                )
            )
        return steps


def serving(name: str, version: str, entries: Iterable[ModelSpec]) -> ModelSpec | None:
    """Return the entry that serves a model; without a version, the default one."""
    own = [spec for spec in entries if spec.name == name and spec.state == SERVING]
    if not version:
        return defaults(own).get(name)
    return next((spec for spec in own if spec.version == version), None)


def entry(
    config: ChainConfig,
    entries: Sequence[ModelSpec],
    *,
    index: int,
    account: int,
    generation: int = 0,
    state: State = SERVING,
) -> ModelSpec:
    """Return the entry of a chain.

    Args:
        config: of the chain.
        entries: of the table, with those of its steps.
        index, account, generation, state: as in `ModelSpec`.

    Raises:
        Unfit: the steps do not fit; the text says why.
    """
    found = fitted(config, entries)
    spec = ModelSpec(
        index=index,
        name=config.name,
        platform=PLATFORM,
        inputs=found.inputs,
        outputs=found.outputs,
        max_batch_size=0,
        max_latency_ns=0,
        timeout_ns=int(config.timeout_s * 1e9),
        policy="eager",
        workers=(),
        kserve_errors=config.kserve_errors,
        generation=generation,
        state=state,
        account=account,
        chain=found.chain,
    )
    return _with_limits(spec, entries)


def first_chains(chains: Iterable[ChainConfig], entries: Entries) -> Entries:
    """Return the entries at a start, with the chains behind the models that run their steps.

    Raises:
        Unfit: a chain does not fit; the text names it.
    """
    found = entries
    for config in chains:
        try:
            spec = entry(config, entries, index=len(found), account=len(found))
        except Unfit as unfit:
            raise Unfit(f"[models.{config.name}] {unfit}") from None
        found = (*found, spec)
    return found


def with_limits(entries: Entries) -> Entries:
    """Return the table with each chain limited to as many instances as each of its steps takes."""
    if all(spec.chain is None for spec in entries):
        return entries
    return tuple(_with_limits(spec, entries) for spec in entries)


def _with_limits(spec: ModelSpec, entries: Sequence[ModelSpec]) -> ModelSpec:
    if spec.chain is None:
        return spec
    found = [serving(step.model, step.version, entries) for step in spec.chain.steps]
    steps = [step for step in found if step is not None]
    if len(steps) < len(found):
        return spec
    batched = any(step.batched for step in steps)
    most = min(step.cap for step in steps) if batched else 0
    return replace(spec, max_batch_size=most, nulls=any(step.nulls for step in steps))


def broken(entries: Entries) -> str:
    """Return a message about the chains of a table that would change; empty if none would."""
    for spec in entries:
        if spec.chain is None or spec.state == LOADING:
            continue
        for number, step in enumerate(spec.chain.steps, 1):
            found = serving(step.model, step.version, entries)
            title = f"chain {spec.name!r}, whose step {number} it is"
            if found is None:
                return f"{step.title} is needed by {title}; unload {spec.name} first"
            if (found.inputs, found.outputs, found.batched) != (
                step.inputs,
                step.outputs,
                step.batched,
            ):
                return (
                    f"{step.title} would take or return other tensors than {title}, was made with; "
                    f"unload {spec.name} first, and load it again afterwards"
                )
    return ""


def _described(tensor: Tensor) -> str:
    return f"{tensor.datatype.name} {list(tensor.shape)}"


def _listed(tensors: Iterable[Tensor]) -> str:
    return ", ".join(repr(tensor.name) for tensor in tensors)
