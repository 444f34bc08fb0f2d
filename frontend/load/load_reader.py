"""Reader of an engine's load from an attached segment."""

from typing import Final

from ringbatch.frontend.load.haproxy_weight import EngineLoad, ModelLoad
from ringbatch.frontend.load.slowdown import Baseline, Runs, SlowdownFollower
from ringbatch.shm import cost_profile
from ringbatch.shm.descriptors import ModelWords
from ringbatch.shm.model_counters import Counted
from ringbatch.shm.model_readiness import unready_reason
from ringbatch.shm.model_spec import SERVING, ModelSpec
from ringbatch.shm.segment import Segment


class LoadReader:
    """Reader of an engine's load. It keeps its latest samples, to compare them with warm-up.

    Args:
        segment: attached.
    """

    def __init__(self, segment: Segment) -> None:
        self._segment: Final = segment
        self._followers: dict[int, SlowdownFollower] = {}
        """Followers of the models' slowdown, by the reference of the model."""

    def look(self, now_ns: int) -> EngineLoad:
        """Return the load now."""
        segment = self._segment
        segment.read_models()
        serving = [spec for spec in segment.models if spec.state == SERVING]
        self._followers = {
            spec.reference: self._followers.get(spec.reference) or SlowdownFollower()
            for spec in serving
        }
        return EngineLoad(
            segment.stopping or (segment.draining and not segment.superseded),
            tuple(self._model(spec, now_ns) for spec in serving),
        )

    def _model(self, spec: ModelSpec, now_ns: int) -> ModelLoad:
        segment = self._segment
        words, layout = segment.words, segment.layout
        first = layout.model(spec.index)
        answer_ns = words[first + ModelWords.ANSWER_NS]
        # Per instance, of all workers together; the collector published it so.
        cycle_ns = words[first + ModelWords.ROW_NS] * spec.cap * words[first + ModelWords.READY]
        pace = self._followers[spec.reference].look(
            now_ns,
            Baseline(
                [cost_profile.read(segment, worker) for worker in spec.workers],
                padded=bool(spec.allowed_batch_sizes),
            ),
            _runs(Counted(words, layout, spec.account)),
            answer_ns / cycle_ns if cycle_ns else 0.0,
        )
        return ModelLoad(
            spec.name,
            unready_reason(words, layout, spec, now_ns),
            max(answer_ns, cycle_ns),
            pace,
        )


def _runs(counted: Counted) -> Runs:
    return {size.rows: (size.batches, size.infer_ns) for size in counted.sizes}
