/* Where counting starts and ends, for a program that valgrind's callgrind runs. */
#include <valgrind/callgrind.h>

/* From here on the program is translated in the form that counts. */
void watch(void) { CALLGRIND_START_INSTRUMENTATION; }

/* Starts counting, or stops it. */
void toggle(void) { CALLGRIND_TOGGLE_COLLECT; }

/* Writes what was counted since the last call into a file that has this name in it. */
void dump(const char *name) { CALLGRIND_DUMP_STATS_AT(name); }
