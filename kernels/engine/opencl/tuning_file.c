/* tuning_file.c - reads the tuning file: the fastest matmul variant and parameters per shape.
 *
 * The one rule: the file is valid for the device and driver that it names, and refused for
 * others. */
#include "launch.h"

#ifndef RUNNER_STATIC

#include <stdlib.h>
#include <string.h>

#include "../os.h"

enum { TUNED_BYTES_MAX = 1 << 20, NUMBERS = 5 };

static bool refuse(struct fault *fault, const char *path, int line, const char *problem) {
    return fault_set(fault, STATUS_UNSUPPORTED, "%.160s, line %d: %s; tune again", path, line,
                     problem);
}

/* The text after the first word of a line, if that word is `name`. */
static const char *after(const char *line, const char *name) {
    size_t length = strlen(name);
    return strncmp(line, name, length) == 0 && line[length] == ' ' ? line + length + 1 : NULL;
}

static bool is_this_device(const struct opencl_device *device, const char *named) {
    char ours[3 * OPENCL_TEXT_BYTES];
    format_text(ours, sizeof ours, "%s\t%s\t%s", device->name, device->version, device->driver);
    return strcmp(ours, named) == 0;
}

/* Whether all words are NAME=DIGITS, as -D options and launch_matmul.c need them. */
static bool are_params(const char *text) {
    while (*text != '\0') {
        size_t name = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        size_t digits = text[name] == '=' ? strspn(text + name + 1, "0123456789") : 0;
        if (name == 0 || name >= PARAM_NAME_BYTES || digits == 0 || digits > 6) {
            return false;
        }
        text += name + 1 + digits;
        if (*text != '\0' && *text++ != ' ') {
            return false;
        }
    }
    return true;
}

bool tuned_parse(char *text, struct tuned *tuned) {
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
    *tuned = (struct tuned){
        .m = (int32_t)number[0],
        .n = (int32_t)number[1],
        .k = (int32_t)number[2],
        .transpose_a = number[3] != 0,
        .transpose_b = number[4] != 0,
        .variant = word[NUMBERS],
        .params = at,
    };
    return matmul_variant_exists(tuned->variant) && are_params(tuned->params);
}

bool tuned_read(struct session *session, const char *path, struct fault *fault) {
    size_t size = 0;
    char *text = read_file(path, TUNED_BYTES_MAX, &size);
    if (text == NULL || size == 0 || text[size - 1] != '\n') {
        return refuse(fault, path, 1, "the tuning file is missing or incomplete");
    }
    text[size - 1] = '\0';
    session->tuned = calloc(size / 10 + 1, sizeof *session->tuned);
    if (session->tuned == NULL) {
        return fault_set(fault, STATUS_OUT_OF_MEMORY,
                         "not enough memory for the tuning file; close other programs");
    }
    int number = 1;
    for (char *line = text, *next; line != NULL; line = next, number++) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        const char *device = after(line, "device"), *record = after(line, "sgemm");
        if (number == 1 && strcmp(line, "farmhand-tuned 2") != 0) {
            return refuse(fault, path, number, "this is not a tuning file");
        }
        if (number == 2 && (device == NULL || !is_this_device(&session->facts.device, device))) {
            return refuse(fault, path, number, "the file is for another device or driver");
        }
        if (record != NULL &&
            !tuned_parse(line + (record - line), &session->tuned[session->tuned_count++])) {
            return refuse(fault, path, number, "this is not a record of a matrix product");
        }
    }
    return number > 2 || refuse(fault, path, number, "the file does not name its device");
}

/* How many times larger the larger one is. */
static double size_ratio(int32_t one, int32_t other) {
    return one > other ? (double)one / other : (double)other / one;
}

const struct tuned *tuned_for(const struct session *session, const struct matmul *matmul) {
    const struct tuned *nearest = NULL;
    double nearest_distance = 0;
    for (int i = 0; i < session->tuned_count; i++) {
        const struct tuned *tuned = &session->tuned[i];
        double distance = size_ratio(tuned->m, matmul->m) * size_ratio(tuned->n, matmul->n) *
                          size_ratio(tuned->k, matmul->k);
        if (tuned->transpose_a == matmul->transpose_a &&
            tuned->transpose_b == matmul->transpose_b &&
            (nearest == NULL || distance < nearest_distance)) {
            nearest = tuned;
            nearest_distance = distance;
        }
    }
    return nearest;
}

#endif
