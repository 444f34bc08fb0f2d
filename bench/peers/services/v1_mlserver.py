"""A model of work.py behind MLServer, over V2: its adaptive batching, no parallel workers."""

import numpy as np
import work
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class Model(MLModel):
    """V2's tensor "x" to its tensor "y"."""

    async def load(self) -> bool:
        """Look up what the model computes."""
        self._predict = work.models()[self.name]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer the requests of one batch."""
        x = NumpyCodec.decode_input(payload.inputs[0])
        y = np.array(self._predict(x.tolist()), np.float32)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", y)])
