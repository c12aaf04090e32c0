/* fault.h - how something is refused: an exit status and one sentence. The first fault is kept. */
#ifndef FARMHAND_FAULT_H
#define FARMHAND_FAULT_H

#include <stdarg.h>
#include <stdbool.h>

#include "../runner/runner.h"
#include "text.h"

struct fault {
    enum runner_exit exit; /* RUNNER_DONE: nothing is wrong */
    char text[400];
};

/* Always false, so that a refusal is one line: return fault_say(...). */
__attribute__((format(printf, 3, 4))) static inline bool fault_say(struct fault *fault,
                                                                   enum runner_exit exit,
                                                                   const char *format, ...) {
    if (fault->exit != RUNNER_DONE) {
        return false;
    }
    va_list values;
    va_start(values, format);
    compose_list(fault->text, sizeof fault->text, format, values);
    va_end(values);
    fault->exit = exit;
    return false;
}

#endif
