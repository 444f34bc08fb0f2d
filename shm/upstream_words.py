"""The descriptors of model servers; `ringbatch.shm.descriptors` has most others."""

from typing import Final

from ringbatch.shm.descriptors import PAIR

UPSTREAMS: Final = 32
"""Model servers that a worker of the runtime http knows at once."""


class AskingWords:
    """Current request of a worker to a model server.

    SERVER is the tag of the server that has its batch, or 0.

    word  name               stored by   how often  loaded by   how often  order
    ----  -----------------  ----------  ---------  ----------  ---------  -------
       0  SERVER             worker      batch      workers     batch      release
       1  SINCE_NS           worker      batch      workers     batch      SERVER
    """

    SERVER: Final = 0
    SINCE_NS: Final = 1
    SIZE: Final = PAIR


class UpstreamWords:
    """Model server as one worker knows it, see `ringbatch.shm.upstreams`.

    TAG is 0 while the record is empty; NAME is text up to a zero. Until HELD_UNTIL_NS it wants no
    batch. TOOK_NS is how long its answers take, 0 if unknown, and LEARNED_NS when that was learned.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  TAG                worker      rarely     workers     batch      release
           1  NAME               worker      rarely     status      rarely     TAG
          32  BATCHES            worker      batch      status      rarely     TAG
          33  FAILURES           worker      batch      status      rarely     TAG
          34  REFUSALS           worker      batch      status      rarely     TAG
          35  FAILED_IN_A_ROW    worker      batch      workers     batch      TAG
          36  ANSWERED_NS        worker      batch      workers     batch      TAG
          37  FAILED_NS          worker      batch      workers     batch      TAG
          38  HELD_UNTIL_NS      worker      batch      workers     batch      TAG
          39  TOOK_NS            worker      batch      workers     batch      TAG
          40  LEARNED_NS         worker      batch      workers     batch      TAG
          41  PROBED_NS          worker      batch      workers     batch      TAG
    """

    TAG: Final = 0
    NAME: Final = 1
    BATCHES: Final = 2 * PAIR
    FAILURES: Final = 33
    REFUSALS: Final = 34
    FAILED_IN_A_ROW: Final = 35
    ANSWERED_NS: Final = 36
    FAILED_NS: Final = 37
    HELD_UNTIL_NS: Final = 38
    TOOK_NS: Final = 39
    LEARNED_NS: Final = 40
    PROBED_NS: Final = 41
    SIZE: Final = 3 * PAIR
