"""Descriptor of the metrics of models' own code; `ringbatch.shm.descriptors` has most others."""

from typing import Final

from ringbatch.shm.descriptors import PAIR


class OwnMetricWords:
    """Metrics of the code of a worker's model.

    COPY is the number of the valid copy, whose place is that number modulo 2; 0 before the first
    count. `ringbatch.shm.model_metrics` has the form of a copy.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  COPY               worker      rarely     control     rarely     release
          16  COPIES             worker      request    control     rarely     COPY
    """

    COPY: Final = 0
    COPIES: Final = PAIR
    COPY_SIZE: Final = 129 * PAIR
    SIZE: Final = PAIR + 2 * COPY_SIZE
