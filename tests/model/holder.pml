/* By a worker, of a slot; and by the collector. */

#define HOLDS(at) held[number * MOST + at]
#define STREAMS(at) (HOLDS(at) && WANTS_PARTS(REF(HOLDS(at), at)))
#define HAS_PUT(at) (HOLDS(at) && PART_IS_OUT(REF(HOLDS(at), at)))
#define GIVEN(worker) (batch[(worker) * MOST] || batch[(worker) * MOST + 1])
#define IN_TASK(worker, number, later) \
    (behind[(worker) * MOST + number] == later -> batch[(worker) * MOST + number] : 0)

#define CAN_FLUSH(producer) \
    (HAS(answered[producer]) && \
        (HAS_COMPLETION_ROOM(producer) || !lane_bell || len(answered[producer]) > SLOTS))

/* shm/engine_slots.py: EngineSlots.flush, the ring */
inline flush(producer) {
    do
    :: HAS(answered[producer]) && HAS_COMPLETION_ROOM(producer) ->
        answered[producer]?ref;
        completions[producer]!ref
    :: else -> break
    od;
    count = len(answered[producer]);
    do
    :: count ->
        answered[producer]?ref;
        if
#ifdef KEEP_THE_LATEST
        :: count > SLOTS -> skip
#else
        :: !IS_LATEST(ref) -> skip
#endif
        :: else -> answered[producer]!ref
        fi;
        count--
    :: else -> break
    od;
    MUST_HOLD(len(answered[producer]) <= SLOTS, g_assertion_of_the_code)
}

inline lose_answered(producer) {
    do
    :: HAS(answered[producer]) -> answered[producer]?_
    :: else -> break
    od;
    count = 0
}

