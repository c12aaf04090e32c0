/* session.h - an opened device with a queue: building programs, preparing launches, keeping time.
 *
 * What device.c does for a plan, and what tune.c does for one product, is done with this. */
#ifndef FARMHAND_SESSION_H
#define FARMHAND_SESSION_H

#include "device.h"
#include "recipes.h"

enum { SCRATCHES = 2, DIMS = 3, OPTIONS_BYTES = 256, PROGRAMS_MAX = 256 };

/* What has to be set anew in every step. */
enum moving { MOVING_NOT, MOVING_KEY, MOVING_FADES };

/* A kernel with its arguments, ready to be enqueued. */
struct launch {
    cl_handle kernel;
    int dims;
    size_t size[DIMS], group[DIMS];
    int scratch[SCRATCHES]; /* which argument is s, which is t; -1: none */
    enum moving moving;
    int moving_at; /* the argument */
};

struct program {
    char key[WORD_BYTES + OPTIONS_BYTES]; /* file and options */
    cl_handle built;
};

/* A record of the tuning file. */
struct tuned {
    int32_t m, n, k;
    bool turned_a, turned_b;
    const char *way, *numbers;
};

/* One command, for the tally. */
struct note {
    cl_handle event;
    enum phase phase;
    bool copies;
};

struct session {
    struct opencl cl;
    struct device_facts facts;
    cl_handle context, queue;
    const char *kernels;
    struct program program[PROGRAMS_MAX];
    struct launch *launch;
    int launches, room;
    size_t scratch_bytes[SCRATCHES], scratch_taken[SCRATCHES];
    cl_handle scratch[SCRATCHES], image;
    struct tuned *tuned;
    int tuned_count;
    struct note *note;
    int notes, note_room;
    struct fault fault; /* of what goes wrong while a plan runs */
    cl_handle (*memory_of)(void *owner, const struct tensor *tensor);
    void *owner;
};

bool session_open(struct session *session, const struct device_settings *settings,
                  struct fault *fault);

/* The refusal of a call that failed. */
bool session_refuse(const struct session *session, const char *what, int32_t status,
                    struct fault *fault);

cl_handle session_buffer(struct session *session, size_t bytes, struct fault *fault);

/* Appends the launches of an operation; false: fault. *lacking: the table has none for it. */
bool session_prepare(struct session *session, const struct op *op, bool *lacking,
                     struct fault *fault);

/* Appends those of a product done in a way; NULL: the way that suits it best. */
bool session_multiply(struct session *session, const struct product *product, const char *way,
                      const char *numbers, struct fault *fault);

/* Takes the memory for in between, once all launches are known, and sets it as their argument. */
bool session_take_scratch(struct session *session, struct fault *fault);

/* Enqueues one launch. */
void session_launch(struct session *session, struct launch *launch, const struct op *op,
                    const struct scene *scene);

/* Copies to the device, or from it; waits for it if asked to. */
void session_copy(struct session *session, cl_handle memory, void *host, size_t bytes, bool there,
                  bool wait, enum phase phase);

void session_wait(struct session *session);
void session_tell(struct session *session, struct device_tally *tally);

/* Reads a tuning file (runner.h). */
bool tuned_read(struct session *session, const char *path, struct fault *fault);

/* Reads the words of one record, cutting them where they lie: M N K TA TB WAY [NAME=VALUE ...]. */
bool tuned_record(char *text, struct tuned *tuned);

/* The record nearest to a product, or NULL. */
const struct tuned *tuned_for(const struct session *session, const struct product *product);

#endif
