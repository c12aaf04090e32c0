/* fault.h - why a plan or a run fails: an exit status and one sentence. The first fault is kept. */
#ifndef FARMHAND_FAULT_H
#define FARMHAND_FAULT_H

#include <stdarg.h>
#include <stdbool.h>

#include "status.h"
#include "text.h"

struct fault {
    enum status status; /* STATUS_DONE: no fault */
    char text[400];
};

/* Sets the fault unless one is set already. Returns false, so that a check fails in one line:
 * return fault_set(...). */
__attribute__((format(printf, 3, 4))) static inline bool
fault_set(struct fault *fault, enum status status, const char *format, ...) {
    if (fault->status != STATUS_DONE) {
        return false;
    }
    va_list values;
    va_start(values, format);
    format_text_list(fault->text, sizeof fault->text, format, values);
    va_end(values);
    fault->status = status;
    return false;
}

#endif
