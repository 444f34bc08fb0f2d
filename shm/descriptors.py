"""Words of the segment: meaning, writer and readers of each. Tables and constants only.

The segment is transient, in native byte order, for one host and one version of ringbatch.
`ringbatch.shm.layout` says where its regions lie; this module says what a region holds. Each class
describes one record. Its constants number the record's words, counted from its first. `Layout`
gives the record's start, and the sum indexes the segment as a memoryview of format ``Q``. SIZE is
the record's length in words, whole cache-line pairs.

Each table says who stores a word and how often, and who loads it and how often:

    once     when the segment is made
    rarely   a start, an end, a change of models; or a command that reads the state
    batch    once a batch, or as often as workers become idle and busy
    request  with every request
    step     with every turn of the collector or of a frontend, at least twice a second

The last column is the order of its accesses, see `ringbatch.shm.memory_order`:

    release  its store releases what was stored before, and its loads acquire that
    full     a full fence follows its store, and its loads are behind one
    relaxed  none: it says nothing of other words
    a word   that of the word that publishes it

No two writers share a pair. A word that others load with every batch, request or step shares its
pair with no word that is stored more often: each store takes the pair out of its readers' caches.
"""

from enum import IntEnum
from struct import Struct
from typing import Final

PAIR: Final = 16
"""Words of two cache lines: the adjacent-line prefetcher pulls them together."""

LAYOUT_VERSION: Final = 32
MAGIC_VALUE: Final = 0x31_48_43_54_42_47_4E_52
"""``RNGBTCH1`` as it stands in memory."""
BEAT_S: Final = 0.5
"""Interval at which the collector, and every other watched process, shows that it moves."""
TASK_WORDS: Final = 1 << 14
"""Capacity of the ring from the collector to a worker."""
TASK_HEADER_WORDS: Final = 6
"""Words of a task in front of its references; the first of them has the task's length in words."""
REPORT_WORDS: Final = 1 << 13
"""Capacity of the ring from a worker to the collector: 910 rows may end in one step."""
SLOW_REQUESTS: Final = 16
"""Slow requests that are kept of each lane: the ones that took longest."""


class HeaderWords:
    """Header of the segment.

    MAGIC is stored last, and says that the rest is complete. The sizes are those of
    `ringbatch.shm.layout.Layout`, TRACED among them. IDENTITY is a random number. MODEL_CONTROL is
    1 if frontends may ask the supervisor to load and unload models. FAIR_SHARES is 1 if the
    accounts of clients share each model. PORT is the HTTP port, 0 without one. READY_NS is when the
    whole engine was ready for the first time, 0 before. MODEL_TABLE is the number of the valid
    model table, whose copy is that number modulo 2. COLLECTOR_ERRNO is the kernel's reason if no
    collector can be started, else 0. RING_COLLECTOR is 0 while no worker is idle, so that requests
    need not wake the collector. COLLECTOR_NS is when it last looked for work; the supervisor makes
    it 0 if the collector has ended. DRAINING is 0 while the engine serves, 1 while it stops, 2 if a
    successor serves. In every version MAGIC, READY_NS and DRAINING stand here, for handovers.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  MAGIC              supervisor  once       everyone    rarely     release
           1  VERSION            supervisor  once       everyone    rarely     MAGIC
           2  SEGMENT_BYTES      supervisor  once       everyone    rarely     MAGIC
           3  LANES              supervisor  once       everyone    rarely     MAGIC
           4  SLOTS              supervisor  once       everyone    rarely     MAGIC
           5  LANE_BYTES         supervisor  once       everyone    rarely     MAGIC
           6  WORKERS            supervisor  once       everyone    rarely     MAGIC
           7  MODELS             supervisor  once       everyone    rarely     MAGIC
           8  MODEL_TABLE_BYTES  supervisor  once       everyone    rarely     MAGIC
           9  IDENTITY           supervisor  once       everyone    rarely     MAGIC
          10  CLIENT_LANES       supervisor  once       everyone    rarely     MAGIC
          11  MODEL_CONTROL      supervisor  once       frontends   rarely     relaxed
          12  READY_NS           supervisor  once       clients     rarely     relaxed
          13  TRACED             supervisor  once       everyone    rarely     MAGIC
          14  PORT               supervisor  once       people      rarely     MAGIC
          15  FAIR_SHARES        supervisor  once       everyone    rarely     relaxed
          16  DRAINING           supervisor  rarely     everyone    request    relaxed
          17  MODEL_TABLE        supervisor  rarely     everyone    request    release
          18  COLLECTOR_ERRNO    supervisor  rarely     frontends   rarely     relaxed
          19  STOPPING           supervisor  rarely     frontends   rarely     relaxed
          32  RING_COLLECTOR     collector   batch      frontends   request    full
          48  COLLECTOR_NS       collector   step       everyone    rarely     relaxed
    """

    MAGIC: Final = 0
    VERSION: Final = 1
    SEGMENT_BYTES: Final = 2
    LANES: Final = 3
    SLOTS: Final = 4
    LANE_BYTES: Final = 5
    WORKERS: Final = 6
    MODELS: Final = 7
    MODEL_TABLE_BYTES: Final = 8
    IDENTITY: Final = 9
    CLIENT_LANES: Final = 10
    MODEL_CONTROL: Final = 11
    READY_NS: Final = 12
    TRACED: Final = 13
    PORT: Final = 14
    FAIR_SHARES: Final = 15
    DRAINING: Final = PAIR
    MODEL_TABLE: Final = 17
    COLLECTOR_ERRNO: Final = 18
    STOPPING: Final = 19
    RING_COLLECTOR: Final = 2 * PAIR
    COLLECTOR_NS: Final = 3 * PAIR
    SIZE: Final = 4 * PAIR


class LaneWords:
    """Words of a lane.

    Requests that its owner sends from now on are for models of the table MODEL_TABLE, or of a later
    one. SERVING is 1 once its owner accepts connections. PAYLOADS is the number of exchanges for
    the payload log that its owner has gathered and not passed on. If the owner dies, they are lost.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  MODEL_TABLE        owner       rarely     collector   rarely     release
           1  SERVING            owner       rarely     supervisor  rarely     relaxed
           2  PAYLOADS           owner       request    owner       rarely     relaxed
    """

    MODEL_TABLE: Final = 0
    SERVING: Final = 1
    PAYLOADS: Final = 2
    SIZE: Final = PAIR


class WorkerState(IntEnum):
    """States of a worker, as it publishes them."""

    ABSENT = 0
    LOADING = 1
    READY = 2
    WARMING = 3


class WorkerWords:
    """Words of a worker.

    STATE is a `WorkerState`; the supervisor stores ABSENT once the worker has ended, and 0 in
    FAILING. MODEL is the reference of its model. SERVERS is how many model servers it knows, and
    SERVERS_DOWN the same if all of several are down, else 0. FAILING is how many batches in a row
    its model has failed entirely, if that is beyond chance, else 0. LEAD_NS is how long before the
    end of its batch a worker on a device wants the next one, else 0. SIZES is how many numbers of
    rows it pads batches to, if its warm-up has tried all of them, else 0. Of a model in steps,
    LIVE_ROWS is how many rows are live there, LIVE_COST what they cost, and MOST_ROWS how many it
    can hold by costs, 0 for no limit. ERRNO is the kernel's reason if no process can be started for
    it, else 0. ENDS is how many of its processes have ended since one was ready, with that one and
    failed starts; it counts while STATE is not READY. AGAIN_NS is the next start.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  STATE              worker      rarely     everyone    batch      release
           1  PID                worker      rarely     status      rarely     STATE
           2  MODEL              worker      rarely     collector   rarely     STATE
           3  SERVERS            worker      rarely     workers     batch      relaxed
           4  SERVERS_DOWN       worker      rarely     frontends   rarely     relaxed
           5  FAILING            worker      rarely     everyone    rarely     relaxed
           6  LEAD_NS            worker      rarely     collector   rarely     STATE
           7  SIZES              worker      rarely     collector   rarely     STATE
          16  ERRNO              supervisor  rarely     frontends   rarely     relaxed
          17  ENDS               supervisor  rarely     collector   rarely     relaxed
          18  AGAIN_NS           supervisor  rarely     frontends   rarely     relaxed
          32  LIVE_ROWS          worker      batch      status      rarely     relaxed
          33  MOST_ROWS          worker      batch      collector   batch      relaxed
          34  LIVE_COST          worker      batch      status      rarely     relaxed
    """

    STATE: Final = 0
    PID: Final = 1
    MODEL: Final = 2
    SERVERS: Final = 3
    SERVERS_DOWN: Final = 4
    FAILING: Final = 5
    LEAD_NS: Final = 6
    SIZES: Final = 7
    ERRNO: Final = PAIR
    ENDS: Final = 17
    AGAIN_NS: Final = 18
    LIVE_ROWS: Final = 2 * PAIR
    MOST_ROWS: Final = 33
    LIVE_COST: Final = 34
    SIZE: Final = 3 * PAIR


class CostProfileWords:
    """Cost profile of a worker: run times of its warm-up batches.

    COUNT is the number of valid records of at most MAX_TRIALS, 0 while they are written. A record
    has the rows, the size of the open dimensions (0 without any), and the nanoseconds of the run.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  COUNT              worker      rarely     collector   rarely     release
           1  TRIALS             worker      rarely     collector   rarely     COUNT
    """

    COUNT: Final = 0
    TRIALS: Final = 1
    TRIAL_SIZE: Final = 3
    MAX_TRIALS: Final = 127
    SIZE: Final = 24 * PAIR


class ModelWords:
    """Words of a model.

    READY counts the workers that hold it now. TAKES is 1 while its requests are accepted; STATE
    says why not, as a `ringbatch.shm.readiness.ModelState`. Until UNSTEADY_NS its workers count as
    unsteady, after DEATHS deaths in a row. ANSWER_NS is the expected time of a new request behind
    all that waits, else 0; ROW_NS is added for each instance not yet taken in. ACCOUNT is the
    account word of all that waits or waited last, EVERY_BIT for several. LEAST_NS is the least time
    of a normal request whose account has none waiting. MOST_NS bounds the expected time, unless 0.
    From STUCK_NS on, unless 0, no batch was finished for too long. AWAITED: requests lack a worker.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  READY              collector   rarely     everyone    rarely     relaxed
           1  TAKES              collector   rarely     frontends   request    release
           2  UNSTEADY_NS        collector   rarely     frontends   rarely     relaxed
           3  DEATHS             collector   rarely     frontends   rarely     relaxed
           4  AWAITED            collector   rarely     supervisor  rarely     relaxed
           5  STATE              collector   rarely     frontends   rarely     release
          16  ANSWER_NS          collector   batch      frontends   request    relaxed
          17  ROW_NS             collector   batch      frontends   request    relaxed
          18  LEAST_NS           collector   batch      frontends   request    relaxed
          19  ACCOUNT            collector   batch      frontends   request    relaxed
          20  MOST_NS            collector   batch      frontends   request    relaxed
          32  STUCK_NS           collector   batch      frontends   rarely     relaxed
    """

    READY: Final = 0
    TAKES: Final = 1
    UNSTEADY_NS: Final = 2
    DEATHS: Final = 3
    AWAITED: Final = 4
    STATE: Final = 5
    ANSWER_NS: Final = PAIR
    ROW_NS: Final = 17
    LEAST_NS: Final = 18
    ACCOUNT: Final = 19
    MOST_NS: Final = 20
    STUCK_NS: Final = 2 * PAIR
    SIZE: Final = 3 * PAIR


class CounterWords:
    """Counters of one writer, a word for each member of an enum of `ringbatch.shm.counters`."""

    SIZE: Final = PAIR


class ModelCounterWords:
    """Counters of the collector for one account.

    See `ringbatch.shm.model_counters`. TAG is the account and 1, or 0. Each `ModelCounter` stands
    before it, then records for classes. Counts by bucket follow, and records for batch sizes.
    """

    BY_CLASS: Final = 20
    CLASS_RECORD: Final = 3
    TAG: Final = 31
    BATCHES_BY_REASON: Final = 32
    BATCHES_BY_ROWS: Final = 40
    REQUESTS_BY_WAIT: Final = 64
    BATCHES_BY_RUN: Final = 88
    BATCHES_BY_SIZE: Final = 112
    SIZE_RECORD: Final = 4
    SIZES: Final = 74
    SIZE: Final = 26 * PAIR


class ScalingWords:
    """Number of a model's workers, from the supervisor, for one account.

    TAG is the account and 1, or 0. WANTED is how many are to run. FAILED is 1 if a model without a
    worker could not get one, and AGAIN_NS is then the next attempt. COUNTS starts a count for each
    `ringbatch.shm.scalings.Cause`, RESTARTS one for each `ringbatch.shm.counters.RestartCase`.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  TAG                supervisor  rarely     everyone    rarely     release
           1  WANTED             supervisor  rarely     everyone    rarely     TAG
           2  FAILED             supervisor  rarely     everyone    rarely     release
           3  AGAIN_NS           supervisor  rarely     frontends   rarely     FAILED
           4  COUNTS             supervisor  rarely     everyone    rarely     TAG
          16  RESTARTS           supervisor  rarely     everyone    rarely     TAG
    """

    TAG: Final = 0
    WANTED: Final = 1
    FAILED: Final = 2
    AGAIN_NS: Final = 3
    COUNTS: Final = 4
    RESTARTS: Final = PAIR
    SIZE: Final = 2 * PAIR


class TallyWords:
    """Outcomes of a lane's requests for one account.

    TAG is the account and 1, or 0. PROTOCOLS starts a run of counts for each protocol, behind which
    are times of answers in parts, see `ringbatch.shm.tallies`.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  TAG                owner       rarely     status      rarely     release
           1  PROTOCOLS          owner       request    status      rarely     TAG
    """

    TAG: Final = 0
    PROTOCOLS: Final = 1
    SIZE: Final = 21 * PAIR


class RequestRecordWords:
    """Record of an ended request, slow or traced, see `ringbatch.shm.slow_requests`.

    SEQUENCE is odd while the others are stored, and 0 if there are none. PHASES, SHARE_NS and
    COPY_NS are those of `ringbatch.shm.latency_breakdown`, in nanoseconds. TRACE is a number of 128
    bits; PARENT and SPAN are the ids of the client's span and its own, 0 if there are none. ID is
    text of ID_BYTES.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  SEQUENCE           owner       rarely     status      rarely     release
           1  ENDED_NS           owner       rarely     status      rarely     SEQUENCE
           2  ACCOUNT            owner       rarely     status      rarely     SEQUENCE
           3  PROTOCOL           owner       rarely     status      rarely     SEQUENCE
           4  CODE               owner       rarely     status      rarely     SEQUENCE
           5  INSTANCES          owner       rarely     status      rarely     SEQUENCE
           6  PHASES             owner       rarely     status      rarely     SEQUENCE
          14  BATCH              owner       rarely     status      rarely     SEQUENCE
          15  BATCH_ROWS         owner       rarely     status      rarely     SEQUENCE
          16  REASON             owner       rarely     status      rarely     SEQUENCE
          17  ATTEMPTS           owner       rarely     status      rarely     SEQUENCE
          18  SHARE_NS           owner       rarely     status      rarely     SEQUENCE
          19  COPY_NS            owner       rarely     status      rarely     SEQUENCE
          20  TRACE              owner       rarely     status      rarely     SEQUENCE
          22  PARENT             owner       rarely     status      rarely     SEQUENCE
          23  SPAN               owner       rarely     status      rarely     SEQUENCE
          24  ID_BYTES           owner       rarely     status      rarely     SEQUENCE
          25  ID                 owner       rarely     status      rarely     SEQUENCE
    """

    SEQUENCE: Final = 0
    ENDED_NS: Final = 1
    ACCOUNT: Final = 2
    PROTOCOL: Final = 3
    CODE: Final = 4
    INSTANCES: Final = 5
    PHASES: Final = 6
    BATCH: Final = 14
    BATCH_ROWS: Final = 15
    REASON: Final = 16
    ATTEMPTS: Final = 17
    SHARE_NS: Final = 18
    COPY_NS: Final = 19
    TRACE: Final = 20
    PARENT: Final = 22
    SPAN: Final = 23
    ID_BYTES: Final = 24
    ID: Final = 25
    SIZE: Final = 3 * PAIR


class RingWords:
    """Ring of words.

    TAIL and HEAD count words since the segment was made and never wrap; item n lies at n modulo the
    capacity.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  TAIL               producer    request    consumer    step       release
          16  HEAD               consumer    request    producer    batch      release
          32  ITEMS              producer    request    consumer    request    TAIL
    """

    TAIL: Final = 0
    HEAD: Final = PAIR
    ITEMS: Final = 2 * PAIR


class SlotWords:
    """Words of a slot: the first pair is the lane owner's, the second its holder's.

    The holder is the collector until it dispatches the request, then the worker.
    `ringbatch.shm.slot` has CONTROL and DONE, `ringbatch.shm.account` has ACCOUNT. MODEL is a
    model's reference. Offsets are bytes from the start of the segment.

        word  name               stored by   how often  loaded by   how often  order
        ----  -----------------  ----------  ---------  ----------  ---------  -------
           0  CONTROL            owner       request    holder      request    release
           1  MODEL              owner       request    holder      request    CONTROL
           2  ROWS               owner       request    holder      request    CONTROL
           3  REQUEST_BYTES      owner       request    holder      request    CONTROL
           4  KEY_BYTES          owner       request    holder      request    CONTROL
           5  RESULT_CAPACITY    owner       request    holder      request    CONTROL
           6  REQUEST_OFFSET     owner       request    holder      request    CONTROL
           7  RESULT_OFFSET      owner       request    holder      request    CONTROL
           8  ACCEPTED_NS        owner       request    holder      request    CONTROL
           9  DEADLINE_NS        owner       request    holder      request    CONTROL
          10  ACCOUNT            owner       request    holder      request    CONTROL
          11  PARTS_OF           owner       rarely     holder      rarely     CONTROL
          12  PARTS_FROM         owner       rarely     holder      rarely     CONTROL
          13  PARTS_TAKEN        owner       rarely     holder      rarely     release
          16  DONE               holder      request    owner       request    release
          17  RESULT_BYTES       holder      request    owner       request    DONE
          18  BATCH              holder      request    owner       request    DONE
          19  BATCH_ROWS         holder      request    owner       request    DONE
          20  REASON             holder      request    owner       request    DONE
          21  DISPATCHED_NS      holder      request    owner       request    DONE
          22  BEGAN_NS           holder      request    owner       request    DONE
          23  GATHERED_NS        holder      request    owner       request    DONE
          24  RAN_NS             holder      request    owner       request    DONE
          25  ATTEMPTS           holder      request    owner       request    DONE
          26  FINISHED_NS        holder      request    owner       request    DONE
          27  ANSWER_START       holder      request    owner       request    DONE
          28  OVERTAKEN          holder      rarely     owner       rarely     DONE
          29  OVERTAKEN_NS       holder      rarely     owner       rarely     DONE
          30  PARTS_END          holder      rarely     owner       rarely     release
          31  JOINED             holder      rarely     holder      rarely     HEAD

    DISPATCHED_NS is when the collector gave the batch to a worker, BEGAN_NS when the worker took it
    up. GATHERED_NS is when the model first started with it, RAN_NS when the model last returned,
    and FINISHED_NS when the answer was written. Each is 0 if it did not happen. ATTEMPTS counts the
    runs of the batch up to this answer; earlier crashes of a worker on it count as one. Its upper
    bits have the time of copies to and from a device, see `ringbatch.shm.attempts`. OVERTAKEN is
    the reference of the slot's last request that later ones of other accounts have passed, from
    OVERTAKEN_NS on. `ringbatch.shm.parts` has the four words of parts, `ringbatch.shm.joined`
    JOINED, `ringbatch.shm.chain` ANSWER_START's use, `ringbatch.shm.slot_structs` runs of words.
    """

    CONTROL: Final = 0
    MODEL: Final = 1
    ROWS: Final = 2
    REQUEST_BYTES: Final = 3
    KEY_BYTES: Final = 4
    RESULT_CAPACITY: Final = 5
    REQUEST_OFFSET: Final = 6
    RESULT_OFFSET: Final = 7
    ACCEPTED_NS: Final = 8
    DEADLINE_NS: Final = 9
    ACCOUNT: Final = 10
    PARTS_OF: Final = 11
    PARTS_FROM: Final = 12
    PARTS_TAKEN: Final = 13
    DONE: Final = PAIR
    RESULT_BYTES: Final = 17
    BATCH: Final = 18
    BATCH_ROWS: Final = 19
    REASON: Final = 20
    DISPATCHED_NS: Final = 21
    BEGAN_NS: Final = 22
    GATHERED_NS: Final = 23
    RAN_NS: Final = 24
    ATTEMPTS: Final = 25
    FINISHED_NS: Final = 26
    ANSWER_START: Final = 27
    OVERTAKEN: Final = 28
    OVERTAKEN_NS: Final = 29
    PARTS_END: Final = 30
    JOINED: Final = 31
    SIZE: Final = 2 * PAIR


REQUEST_RECORD_DETAILS: Final = Struct("@24Q128s")
"""Words of a request's record from ENDED_NS to the last word of ID."""
