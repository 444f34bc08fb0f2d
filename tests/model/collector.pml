/* shm/holder.py: Holder.fail, by the collector. Nobody reads what it writes until DONE is stored,
 * and a successor writes it anew; so all of it is one step. */
inline fail(number) {
    ref = REF(control[number], number);
    MUST_HOLD(IS_OPEN(ref), g_answered_twice);
    MUST_HOLD(g_owner[header_extent[number]] == ref, g_handed_out_again);
    result[header_extent[number]] = ref;
    done[number] = GENERATION(ref);
    answered[COLLECTOR]!ref
}

#define GIVEN(worker) (batch[(worker) * MOST] || batch[(worker) * MOST + 1])
#define IN_BATCH(worker, ref) SAME(REF(batch[(worker) * MOST + SLOT(ref)], SLOT(ref)), ref)
/* engine/collector.py: Collector._known */
#define KNOWN(ref) \
    (SAME(REF(queue[SLOT(ref)], SLOT(ref)), ref) || IN_BATCH(0, ref) || IN_BATCH(1, ref))

/* engine/collector.py: Collector._take_in */
inline take_in(reference) {
    MUST_HOLD(header_ref[SLOT(reference)] == reference, g_mixed_up);
    MUST_HOLD(queue[SLOT(reference)] == 0, g_handed_out_again);
    queue[SLOT(reference)] = GENERATION(reference)
}

#ifdef BELIEVE_THE_DEAD
#define IS_BEGUN(report) ((report) != ANSWERED)
#else
/* engine/collect.py: main(), what `alive` is there */
#define IS_BEGUN(report) ((report) == BEGUN)
#endif

/* engine/collector.py: Collector._take_reports, Collector._worker_ready, Collector._batch_done */
inline take_reports(worker) {
    do
    :: HAS(reports[worker]) ->
        reports[worker]?ref;
        if
        :: ref == ANSWERED && GIVEN(worker) ->
            for (i : worker * MOST .. worker * MOST + MOST - 1) {
                batch[i] = (behind[i] -> batch[i] : 0);
                batch_deaths[i] = 0;
                behind[i] = 0
            }
            idle[worker] = !ending[worker] && !GIVEN(worker)
        :: IS_BEGUN(ref) ->
            MUST_HOLD(!ready[worker], g_assertion_of_the_code);
            ready[worker] = 1;
            idle[worker] = 1
        :: else -> skip
        fi
    :: else -> break
    od;
    ref = 0
}

/* engine/collector.py: Collector._take_back, Collector._unanswered; shm/holder.py: Holder.repeat */
inline take_back(worker) {
    for (i : 0 .. MOST - 1) {
        count = worker * MOST + i;
        if
        :: batch[count] ->
            ref = REF(batch[count], i);
            if
#ifdef REPEAT_NOTHING
            :: !IS_OPEN(ref) -> skip
#else
            :: !IS_OPEN(ref) -> answered[COLLECTOR]!ref
#endif
            :: IS_OPEN(ref) && !behind[count] && batch_deaths[count] + 1 >= MAX_DEATHS -> fail(i)
            :: else ->
                take_in(ref);
                again[i] = 1;
                queue_deaths[i] = batch_deaths[count] + !behind[count]
            fi;
            batch[count] = 0;
            batch_deaths[count] = 0;
            behind[count] = 0
        :: else -> skip
        fi
    }
}

/* engine/collector.py: Collector.worker_died; engine/collect.py: main(), buried */
inline bury(worker) {
    take_reports(worker);
    take_back(worker);
    ready[worker] = 0;
    idle[worker] = 0;
    ending[worker] = 0;
    told_dead[worker] = 0;
    may_start[worker] = 1
}

inline leave_queue(number) {
    queue[number] = 0;
    queue_deaths[number] = 0;
    again[number] = 0
}

#define CAN_DROP(number) \
    (collector_at == STEPPING && queue[number] && (dropped[number] || expiries_left))

inline drop(number) {
    expiries_left = expiries_left - !dropped[number];
    fail(number);
    leave_queue(number)
}

#define CAN_RETRY(number) (again[number] && !dropped[number])
#define CAN_RUN(number) (queue[number] && !again[number] && !dropped[number])

inline give(worker, number) {
    batch[worker * MOST + number] = queue[number];
    batch_deaths[worker * MOST + number] = queue_deaths[number];
    idle[worker] = 0;
    leave_queue(number)
}

#define IN_TASK(worker, number, later) \
    (behind[(worker) * MOST + number] == later -> batch[(worker) * MOST + number] : 0)
#define SEND_TASK(worker, later) \
    tasks[worker]!IN_TASK(worker, 0, later),IN_TASK(worker, 1, later)

/* The model gives any busy worker a batch to go on with; the code the only one, where it is full. */
#define CAN_PREPARE(worker) \
    (GIVEN(worker) && !ending[worker] && !behind[(worker) * MOST] && !behind[(worker) * MOST + 1])
#define CAN_GO_BEHIND(worker, number) \
    (CAN_PREPARE(worker) && CAN_RUN(number) && !batch[(worker) * MOST + number])

inline prepare(worker, number) {
    give(worker, number);
    behind[worker * MOST + number] = 1;
    SEND_TASK(worker, 1)
}

/* Two idle workers are alike unless one of these tells them apart. */
#define ARE_TOLD_APART \
    (worker_at[0] != worker_at[1] || HAS(completions[0]) || HAS(completions[1]) || \
        HAS(answered[0]) || HAS(answered[1]) || frontend_at == TAKING)

inline choose_worker() {
    if
    :: idle[0] -> chosen = 0
    :: idle[1] && (!idle[0] || ARE_TOLD_APART) -> chosen = 1
    fi
}

#define IS_OVERDUE(worker) (GIVEN(worker) && !ending[worker])

proctype collector() {
end:
    do

    /* engine/collector.py: Collector.step; Collector._take_reports */
    :: d_step { collector_at == STEPPING && HAS(reports[0]) -> take_reports(0) }
    :: d_step { collector_at == STEPPING && HAS(reports[1]) -> take_reports(1) }

    /* engine/collector.py: Collector._take_submissions. Whether a reference that is not known is
     * open changes for nobody but its holder, so that all are looked at in one step. */
    :: d_step {
            collector_at == STEPPING && HAS(submissions) ->
            do
            :: HAS(submissions) ->
                submissions?ref;
                if
#ifdef TAKE_THE_ANSWERED
                :: !KNOWN(ref) -> take_in(ref)
#else
                :: !KNOWN(ref) && IS_OPEN(ref) -> take_in(ref)
#endif
                :: else -> skip
                fi
            :: else -> break
            od;
            ref = 0
        }

    /* engine/dispatcher.py: Dispatcher._serve_again, Dispatcher._dispatch */
    :: atomic {
            collector_at == STEPPING && (idle[0] || idle[1]) && (CAN_RETRY(0) || CAN_RETRY(1)) ->
            choose_worker();
            if
            :: CAN_RETRY(0) -> give(chosen, 0)
            :: CAN_RETRY(1) -> give(chosen, 1)
            fi;
            SEND_TASK(chosen, 0);
            chosen = 0
        }

    /* engine/dispatcher.py: Dispatcher._serve_queue, Dispatcher._dispatch */
    :: atomic {
            collector_at == STEPPING && (idle[0] || idle[1]) && !again[0] && !again[1] &&
                (CAN_RUN(0) || CAN_RUN(1)) ->
            choose_worker();
            if
            :: CAN_RUN(0) -> give(chosen, 0)
            :: CAN_RUN(1) -> give(chosen, 1)
            :: CAN_RUN(0) && CAN_RUN(1) -> give(chosen, 0); give(chosen, 1)
            fi;
            SEND_TASK(chosen, 0);
            chosen = 0
        }

    /* engine/dispatcher.py: Dispatcher._serve_queue, Dispatcher._dispatch; engine/members.py:
     * Model.takes_next */
    :: atomic {
            collector_at == STEPPING && !again[0] && !again[1] &&
                (CAN_GO_BEHIND(0, 0) || CAN_GO_BEHIND(0, 1) || CAN_GO_BEHIND(1, 0) ||
                    CAN_GO_BEHIND(1, 1)) ->
            if
            :: CAN_GO_BEHIND(0, 0) -> prepare(0, 0)
            :: CAN_GO_BEHIND(0, 1) -> prepare(0, 1)
            :: CAN_GO_BEHIND(1, 0) -> prepare(1, 0)
            :: CAN_GO_BEHIND(1, 1) -> prepare(1, 1)
            fi
        }

    /* engine/dispatcher.py: Dispatcher._drop, Dispatcher._drop_expired; engine/collector.py:
     * Collector._take_in */
    :: d_step { CAN_DROP(0) -> drop(0) }
    :: d_step { CAN_DROP(1) -> drop(1) }

    /* engine/collector.py: Collector._watch; engine/supervisor.py: Supervisor._end_hung */
    :: atomic {
            collector_at == STEPPING && hangs_left && (IS_OVERDUE(0) || IS_OVERDUE(1)) ->
            if
            :: IS_OVERDUE(0) -> chosen = 0
            :: IS_OVERDUE(1) -> chosen = 1
            fi;
            hangs_left--;
            ending[chosen] = 1;
            must_end[chosen] = (worker_at[chosen] != ABSENT);
#ifdef RETRY_ON_TIMEOUT
            take_back(chosen);
#endif
            chosen = 0
        }

    /* engine/collector.py: Collector.worker_died; engine/supervisor.py: Supervisor._heard */
    :: d_step { collector_at == STEPPING && told_dead[0] -> bury(0) }
    :: d_step { collector_at == STEPPING && told_dead[1] -> bury(1) }

    /* shm/holder.py: Holder.flush, the ring; again every RETRY_NS where something found no room */
    :: d_step {
            collector_at == STEPPING && !lane_to_wake && CAN_FLUSH(COLLECTOR) ->
            flush(COLLECTOR);
            lane_to_wake = 1
        }

    /* shm/holder.py: Holder.flush, the doorbell */
    :: d_step { lane_to_wake -> lane_to_wake = 0; lane_bell = 1 }

    /* Its death. engine/supervisor.py: Supervisor._restart_engine */
    :: d_step {
            collector_at != STOPPED && collector_deaths_left ->
            collector_deaths_left--;
            for (i : 0 .. WORKERS - 1) {
                ready[i] = 0;
                idle[i] = 0;
                ending[i] = 0;
                told_dead[i] = 0;
#ifndef WORKERS_SURVIVE
                must_end[i] = (worker_at[i] != ABSENT);
#endif
                may_start[i] = (worker_at[i] == ABSENT)
            }
            for (i : 0 .. MOST - 1) { leave_queue(i) }
            for (i : 0 .. WORKERS * MOST - 1) {
                batch[i] = 0;
                batch_deaths[i] = 0;
                behind[i] = 0
            }
            lose_answered(COLLECTOR);
            lane_to_wake = 0;
            scanned = 0;
            collector_at = STOPPED
        }

    /* The next one. engine/supervisor.py: Supervisor._start_collector; engine/collector.py:
     * Collector._adopt, rings */
    :: d_step {
            collector_at == STOPPED && !must_end[0] && !must_end[1] ->
            do
            :: HAS(submissions) -> submissions?_
            :: else -> break
            od;
            collector_at = SCANNING
        }

    /* engine/collector.py: Collector._adopt, one slot after the other; Collector._take_in;
     * shm/holder.py: Holder.published, Holder.repeat */
    :: d_step {
            collector_at == SCANNING ->
            ref = REF(control[scanned], scanned);
            if
            :: control[scanned] == 0 -> skip
            :: control[scanned] && IS_OPEN(ref) -> take_in(ref)
#ifdef ADOPT_ONLY_THE_OPEN
            :: else -> skip
#else
            :: else -> answered[COLLECTOR]!ref
#endif
            fi;
            if
            :: scanned + 1 < SLOTS -> scanned++
            :: else -> scanned = 0; collector_at = STEPPING
            fi
        }
    od
}
