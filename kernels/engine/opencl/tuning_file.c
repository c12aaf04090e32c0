/* tuned.c - the tuning file: which way to multiply, with which numbers, was fastest on this device.
 *
 * The one rule: it holds for the device and driver that it names, and is refused on any other. */
#include "session.h"

#ifndef RUNNER_STATIC

#include <stdlib.h>
#include <string.h>

#include "../../runner/system.h"

enum { TUNED_BYTES_MAX = 1 << 20, NUMBERS = 5 };

static bool refuse(struct fault *fault, const char *path, int line, const char *what) {
    return fault_say(fault, RUNNER_UNSUPPORTED, "%.160s, line %d: %s; tune again", path, line,
                     what);
}

/* The text behind the first word of a line, if that is `name`. */
static const char *after(const char *line, const char *name) {
    size_t length = strlen(name);
    return strncmp(line, name, length) == 0 && line[length] == ' ' ? line + length + 1 : NULL;
}

static bool is_this_device(const struct opencl_device *device, const char *said) {
    char ours[3 * OPENCL_TEXT_BYTES];
    compose(ours, sizeof ours, "%s\t%s\t%s", device->name, device->version, device->driver);
    return strcmp(ours, said) == 0;
}

/* M N K TA TB WAY [NAME=VALUE ...]; the words stay where they lie. */
bool tuned_record(char *text, struct tuned *tuned) {
    char *word[NUMBERS + 1], *at = text;
    double number[NUMBERS];
    for (int i = 0; i <= NUMBERS; i++) {
        word[i] = at;
        at += strcspn(at, " ");
        if (i < NUMBERS && *at != ' ') {
            return false;
        }
        if (*at == ' ') {
            *at++ = '\0';
        }
        if (i < NUMBERS &&
            (!parse_number(word[i], &number[i]) || !(number[i] >= (i < 3) && number[i] < 1e9))) {
            return false;
        }
    }
    *tuned = (struct tuned){(int32_t)number[0], (int32_t)number[1], (int32_t)number[2],
                            number[3] != 0,     number[4] != 0,     word[NUMBERS],
                            at};
    return recipe_is_way(tuned->way);
}

bool tuned_read(struct session *session, const char *path, struct fault *fault) {
    size_t size = 0;
    char *text = read_whole(path, TUNED_BYTES_MAX, &size);
    if (text == NULL || size == 0 || text[size - 1] != '\n') {
        return refuse(fault, path, 1, "there is no tuning file, or half of one");
    }
    text[size - 1] = '\0';
    session->tuned = calloc(size / 10 + 1, sizeof *session->tuned);
    if (session->tuned == NULL) {
        return fault_say(fault, RUNNER_OUT_OF_MEMORY, "no memory for the tuning file");
    }
    int number = 1;
    for (char *line = text, *next; line != NULL; line = next, number++) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        const char *device = after(line, "device"), *record = after(line, "sgemm");
        if (number == 1 && strcmp(line, "farmhand-tuned 2") != 0) {
            return refuse(fault, path, number, "this is no tuning file");
        }
        if (number == 2 && (device == NULL || !is_this_device(&session->facts.device, device))) {
            return refuse(fault, path, number, "it is for another device or driver");
        }
        if (record != NULL && !tuned_record(line + (record - line),
                                            &session->tuned[session->tuned_count++])) {
            return refuse(fault, path, number, "this is no record of a product");
        }
    }
    return number > 2 || refuse(fault, path, number, "it does not name its device");
}

/* How many times larger one is than the other. */
static double apart(int32_t one, int32_t other) {
    return one > other ? (double)one / other : (double)other / one;
}

const struct tuned *tuned_for(const struct session *session, const struct product *product) {
    const struct tuned *nearest = NULL;
    double least = 0;
    for (int i = 0; i < session->tuned_count; i++) {
        const struct tuned *tuned = &session->tuned[i];
        double distance = apart(tuned->m, product->m) * apart(tuned->n, product->n) *
                          apart(tuned->k, product->k);
        if (tuned->turned_a == product->turned_a && tuned->turned_b == product->turned_b &&
            (nearest == NULL || distance < least)) {
            nearest = tuned;
            least = distance;
        }
    }
    return nearest;
}

#endif
