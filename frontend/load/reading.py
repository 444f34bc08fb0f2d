"""What an attached segment says of an engine's load at one instant."""

from ringbatch.frontend.load.word import EngineLoad, ModelLoad
from ringbatch.frontend.request.readiness import obstacle_of
from ringbatch.shm import cost_profile
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.model_spec import SERVING, ModelSpec
from ringbatch.shm.segment import Segment


def engine_load(segment: Segment, now_ns: int) -> EngineLoad:
    """What it says now."""
    segment.read_models()
    models = (spec for spec in segment.models if spec.state == SERVING)
    return EngineLoad(
        segment.stopping or (segment.draining and not segment.superseded),
        tuple(_model(segment, spec, now_ns) for spec in models),
    )


def _model(segment: Segment, spec: ModelSpec, now_ns: int) -> ModelLoad:
    words, layout = segment.words, segment.layout
    first = layout.model(spec.index)
    # Per instance, of all workers together; the collector published it so.
    cycle_ns = words[first + ModelWords.ROW_NS] * spec.cap * words[first + ModelWords.READY]
    trials = (t for worker in spec.workers for t in cost_profile.read(segment, worker))
    return ModelLoad(
        spec.name,
        obstacle_of(words, layout, spec, now_ns),
        words[first + ModelWords.ANSWER_NS],
        cycle_ns,
        min((trial.run_ns for trial in trials), default=0),
    )
