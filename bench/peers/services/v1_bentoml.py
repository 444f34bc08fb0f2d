"""Models of work.py behind BentoML: its adaptive batching, one worker; answers are bare lists."""

import bentoml
import work

((NAME, predict),) = work.models().items()


@bentoml.service(workers=1, traffic={"timeout": 60, "max_concurrency": 4096})
class Model:
    """`{"instances": [instance]}` to `[row]`, one instance each."""

    @bentoml.api(
        batchable=True,
        max_batch_size=work.CAP,
        max_latency_ms=60_000,
        route=work.path(NAME),
    )
    def predict(self, instances: list) -> list:  # type: ignore[type-arg]
        """Answer the requests of one batch."""
        return predict(instances)
