"""The descriptor of what the code of models counts; `ringbatch.shm.descriptors` has most others."""

from typing import Final

from ringbatch.shm.descriptors import PAIR


class OwnMetricWords:
    """What the code of a worker's model counts. COPY is the number of the copy that holds, which is
    in the place of that number modulo 2; 0 where nothing was counted. A copy is as
    `ringbatch.shm.own_metrics` has it.

        word  name               stored by   how often  loaded by   how often
        ----  -----------------  ----------  ---------  ----------  ---------
           0  COPY               worker      rarely     control     rarely
          16  COPIES             worker      request    control     rarely
    """

    COPY: Final = 0
    COPIES: Final = PAIR
    COPY_SIZE: Final = 129 * PAIR
    SIZE: Final = PAIR + 2 * COPY_SIZE
