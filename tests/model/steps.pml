/* Models in steps, where STEPS is 1. Rows join and end between any two steps of the model, so that a
 * worker cannot leave their tasks in its ring until they are answered. JOINED of the slot names the
 * holder instead.
 */

/* By the worker. `picked` are the rows that it is at: those that join, give a part, or end. */

#define PICKED(at) picked[number * MOST + at]
#define IS_NOW(at) (HOLDS(at) && (!STEPS || PICKED(at)))
#define HELD_BY_ANOTHER(at) (HOLDS(at) && held[(1 - number) * MOST + at] == HOLDS(at))

inline pick(at, taken) {
    if
    :: taken ->
        HOLDS(at) = taken;
        given[number * MOST + at] = taken;
        PICKED(at) = 1;
        MUST_HOLD(!HELD_BY_ANOTHER(at), g_held_twice)
    :: else -> skip
    fi
}

/* shm/ring.py: Consumer.peek. Nothing is taken out. */
inline peek_all(ring) {
    peeked[number] = len(ring);
    for (count : 1 .. peeked[number]) {
        ring?ref,slot,learnt_step,learnt_giver;
        ring!ref,slot,learnt_step,learnt_giver;
        joint[number] = (ref && slot);
        pick(0, ref);
        pick(1, slot)
    }
    ref = 0;
    slot = 0;
    learnt_step = 0;
    learnt_giver = 0;
    count = 0
}

inline unpick() {
    PICKED(0) = 0;
    PICKED(1) = 0
}

inline release_peeked() {
    do
    :: peeked[number] -> tasks[number]?_,_,_,_; peeked[number] = peeked[number] - 1
    :: else -> break
    od
}

#define JOINS(at) (PICKED(at) && !stored[number * MOST + at])

inline join(at) {
    joined[at] = HOLDS(at);
    joined_by[at] = number;
    joined_with[at] = joint[number];
    stored[number * MOST + at] = 1
}

/* Of the rows that have joined, those of which a part is out already are to be answered. */
inline begin_rows() {
    for (i : 0 .. MOST - 1) {
        stored[number * MOST + i] = 0;
        MUST_HOLD(!PICKED(i) || HAS_PUT(i) || !g_out[i], g_run_again);
        PICKED(i) = PICKED(i) && HAS_PUT(i)
    }
}

#define IS_ANSWERED(at) (given[number * MOST + at] && !HOLDS(at))
#define IS_TO_REPORT \
    (joint[number] -> IS_ANSWERED(0) && IS_ANSWERED(1) : IS_ANSWERED(0) || IS_ANSWERED(1))

/* Batches of which every request is answered, one after the other. */
inline report_answered() {
    if
    :: joint[number] ->
        reports[number]!given[number * MOST],given[number * MOST + 1],0;
        given[number * MOST] = 0;
        given[number * MOST + 1] = 0;
        joint[number] = 0
    :: !joint[number] && IS_ANSWERED(0) ->
        reports[number]!given[number * MOST],0,0;
        given[number * MOST] = 0
    :: else ->
        reports[number]!0,given[number * MOST + 1],0;
        given[number * MOST + 1] = 0
    fi
}

/* By the collector. */

#ifdef TAKE_FROM_BOTH
bit twice[WORKERS * MOST];               /* the collector has it a second time */
#endif

#define IS_OF(worker, later) \
    ((ref && IN_TASK(worker, 0, later) == ref) || (slot && IN_TASK(worker, 1, later) == slot))

inline take_done(worker, later) {
    for (i : worker * MOST .. worker * MOST + MOST - 1) {
        if
#ifdef TAKE_FROM_BOTH
        :: batch[i] && behind[i] == later && twice[i] -> twice[i] = 0
        :: batch[i] && behind[i] == later && !twice[i] ->
#else
        :: batch[i] && behind[i] == later ->
#endif
            batch[i] = 0;
            batch_deaths[i] = 0
        :: else -> skip
        fi;
        behind[i] = 0
    }
    idle[worker] = !ending[worker] && !GIVEN(worker)
}

#ifdef JOINED_WITHOUT_GENERATION
#define IS_JOINED(number) (joined[number] && IS_OPEN(REF(control[number], number)))
#else
#define IS_JOINED(number) (joined[number] && IS_OPEN(REF(joined[number], number)))
#endif
#define HOLDER(number) joined_by[number]
#define ENTRY(number) (HOLDER(number) * MOST + number)

/* BATCH is the same in both slots. */
#define IS_OF_ONE_BATCH(number) \
    (joined_with[number] && joined_with[1 - number] && \
        batch[HOLDER(number) * MOST + 1 - number] == joined[1 - number])

/* A place is free; also where the slot's last request is answered and that is not reported yet. */
#define HAS_PLACE(worker, number) \
    (GIVEN(worker) && !ending[worker] && \
        (!batch[(worker) * MOST + number] || !IS_OPEN(REF(batch[(worker) * MOST + number], number))))

/* What is held by the slot, and may stand in the ring too. */
inline learn_joined(number) {
    if
#ifndef TAKE_FROM_BOTH
    :: batch[ENTRY(number)] == control[number] -> skip
#else
    :: batch[ENTRY(number)] == control[number] -> twice[ENTRY(number)] = 1
#endif
    :: else ->
        behind[ENTRY(number)] = GIVEN(HOLDER(number)) && !IS_OF_ONE_BATCH(number);
        batch[ENTRY(number)] = control[number]
    fi
}

#ifdef CLEAR_THE_ANSWERED
#define IS_TO_CLEAR(number) (joined[number] && joined_by[number] == clearing)
#else
#define IS_TO_CLEAR(number) \
    (joined[number] && joined_by[number] == clearing && IS_OPEN(REF(joined[number], number)))
#endif

inline clear(number) {
    joined[number] = 0;
    joined_by[number] = 0;
    joined_with[number] = 0
}
