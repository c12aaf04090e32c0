/* status.h - exit statuses of the runner; runner/runner.h lists their fault codes and meanings.
 *
 * They are defined here because the engine sets most of them, and engine code includes engine
 * headers only; runner code includes both. */
#ifndef FARMHAND_STATUS_H
#define FARMHAND_STATUS_H

enum status {
    STATUS_DONE = 0,
    STATUS_USAGE = 2,
    STATUS_BAD_PLAN = 3,
    STATUS_UNSUPPORTED = 4,
    STATUS_OUT_OF_MEMORY = 5,
    STATUS_WRONG_ANSWER = 6,
    STATUS_STOPPED = 7,
    STATUS_IO = 8,
    STATUS_NO_RUNNER = 9,
    STATUS_GUARD_RESTORED = 10,
    STATUS_DEVICE = 11,
    STATUS_BAD_CHECKPOINT = 12
};

#endif
