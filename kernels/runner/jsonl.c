/* jsonl.c - the JSON writer. It is written by hand because thousands of readings per run must cost
 * next to nothing; see jsonl.h. */
#include "jsonl.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../engine/os.h"

static void put(struct jsonl_writer *out, const char *text, size_t length) {
    if (out->used + length <= out->size) {
        memcpy(out->text + out->used, text, length);
    }
    out->used += length; /* beyond size: say_end() drops the line */
}

static void put_char(struct jsonl_writer *out, char letter) {
    if (out->used < out->size) {
        out->text[out->used] = letter;
    }
    out->used++;
}

static bool allocate_buffer(struct jsonl_writer *out, size_t room) {
    out->size = room + RUNNER_LINE_BYTES_MAX;
    out->used = out->line = 0;
    out->text = malloc(out->size);
    return out->text != NULL ||
           fault_set(out->fault, STATUS_OUT_OF_MEMORY,
                     "not enough memory for the output buffer; close other programs");
}

bool jsonl_open(struct jsonl_writer *out, const char *folder, const char *name, bool append,
                size_t room, struct fault *fault) {
    *out = (struct jsonl_writer){.file = -1, .fault = fault};
    format_text(out->name, sizeof out->name, "%s", name);
    char path[PATH_BYTES];
    if (!allocate_buffer(out, room)) {
        return false;
    }
    if (!join_path(path, folder, name)) {
        return fault_set(fault, STATUS_IO, "the path of the folder is too long");
    }
    out->file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC), 0644);
    if (out->file < 0) {
        return fault_set(fault, STATUS_IO, "cannot write %.200s: %s", path, os_error_text());
    }
    out->written = lseek(out->file, 0, SEEK_END);
    char last = '\n';
    if (out->written > 0 && pread(out->file, &last, 1, out->written - 1) == 1 && last != '\n') {
        put_char(out, '\n'); /* an earlier writer died in the middle of a line */
    }
    return true;
}

void jsonl_to_stdout(struct jsonl_writer *out, struct fault *fault) {
    *out = (struct jsonl_writer){
        .file = STDOUT_FILENO, .written = -1, .fault = fault, .name = "stdout"};
    allocate_buffer(out, 0);
}

void json_begin(struct jsonl_writer *out, const char *kind) {
    if (out->size - out->used < RUNNER_LINE_BYTES_MAX) {
        jsonl_flush(out);
    }
    out->line = out->used;
    put(out, "{\"line\":\"", 9);
    put(out, kind, strlen(kind));
    put_char(out, '"');
}

static void put_name(struct jsonl_writer *out, const char *name) {
    char before = out->used > out->line && out->used <= out->size ? out->text[out->used - 1] : '[';
    if (before != '[' && before != '{') {
        put_char(out, ',');
    }
    if (name != NULL) {
        put_char(out, '"');
        put(out, name, strlen(name));
        put(out, "\":", 2);
    }
}

void json_int(struct jsonl_writer *out, const char *name, int64_t value) {
    char digits[NUMBER_BYTES];
    put_name(out, name);
    if (value < 0) {
        put_char(out, '-');
    }
    put(out, digits, format_integer(digits, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10));
}

void json_real(struct jsonl_writer *out, const char *name, double value) {
    char digits[NUMBER_BYTES];
    if (!isfinite(value)) {
        json_null(out, name);
        return;
    }
    put_name(out, name);
    put(out, digits, format_number(digits, value));
}

void json_raw(struct jsonl_writer *out, const char *name, const char *json) {
    put_name(out, name);
    put(out, json, strlen(json));
}

void json_bool(struct jsonl_writer *out, const char *name, bool value) {
    json_raw(out, name, value ? "true" : "false");
}

void json_null(struct jsonl_writer *out, const char *name) { json_raw(out, name, "null"); }

/* The length of the UTF-8 character that begins here, or 0: invalid. */
static size_t utf8_length(const unsigned char *at, size_t left) {
    size_t length = *at < 0x80 ? 1 : *at < 0xc2 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : 4;
    if (length == 0 || length > left || *at > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (*at == 0xe0 && at[1] < 0xa0) || (*at == 0xf0 && at[1] < 0x90);
    bool surrogate = *at == 0xed && at[1] > 0x9f;
    bool beyond = *at == 0xf4 && at[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : length;
}

/* How many of the next bytes need no escape: nearly all that the kernel writes. */
static size_t plain_bytes(const char *text, size_t length) {
    size_t plain = 0;
    while (plain < length && text[plain] >= ' ' && text[plain] < 0x7f && text[plain] != '"' &&
           text[plain] != '\\') {
        plain++;
    }
    return plain;
}

/* Writes one character that may need an escape; returns how many bytes it had. */
static size_t put_escaped(struct jsonl_writer *out, const char *text, size_t length) {
    static const char hex[] = "0123456789abcdef";
    unsigned char letter = (unsigned char)*text;
    size_t bytes = utf8_length((const unsigned char *)text, length);
    if (bytes == 0) {
        put_char(out, '?');
        return 1;
    }
    if (letter < ' ' || letter == 0x7f) {
        char code[] = {'\\', 'u', '0', '0', hex[letter >> 4], hex[letter & 15]};
        put(out, code, sizeof code);
        return 1;
    }
    if (letter == '"' || letter == '\\') {
        put_char(out, '\\');
    }
    put(out, text, bytes);
    return bytes;
}

void json_text(struct jsonl_writer *out, const char *name, const char *text, size_t length) {
    put_name(out, name);
    put_char(out, '"');
    for (size_t i = 0; i < length;) {
        size_t plain = plain_bytes(text + i, length - i);
        put(out, text + i, plain);
        i += plain;
        i += i < length ? put_escaped(out, text + i, length - i) : 0;
    }
    put_char(out, '"');
}

void json_string(struct jsonl_writer *out, const char *name, const char *word) {
    json_text(out, name, word, strlen(word));
}

void json_open(struct jsonl_writer *out, const char *name, char bracket) {
    put_name(out, name);
    put_char(out, bracket);
}

void json_close(struct jsonl_writer *out, char bracket) { put_char(out, bracket); }

size_t json_room(const struct jsonl_writer *out) {
    size_t used = out->used - out->line;
    return used < RUNNER_LINE_BYTES_MAX ? RUNNER_LINE_BYTES_MAX - used : 0;
}

void json_end(struct jsonl_writer *out) {
    put(out, "}\n", 2);
    if (out->used > out->size || out->used - out->line > RUNNER_LINE_BYTES_MAX) {
        out->used = out->line;
    }
}

bool jsonl_flush(struct jsonl_writer *out) {
    bool fine = write_fully(out->file, out->text, out->used);
    if (!fine) {
        fault_set(out->fault, STATUS_IO, "cannot write %s: %s", out->name, os_error_text());
        if (out->written >= 0 && ftruncate(out->file, out->written) != 0) {
            /* The incomplete line stays; a reader sees that it has no end. */
        }
    } else if (out->written >= 0) {
        out->written += (int64_t)out->used;
    }
    out->used = out->line = 0;
    return fine;
}

static void write_fault(struct jsonl_writer *out, const struct fault *fault) {
    static const char *const codes[] = {
        [STATUS_USAGE] = "usage",
        [STATUS_BAD_PLAN] = "bad_plan",
        [STATUS_UNSUPPORTED] = "unsupported",
        [STATUS_OUT_OF_MEMORY] = "out_of_memory",
        [STATUS_WRONG_ANSWER] = "wrong_answer",
        [STATUS_STOPPED] = "stopped",
        [STATUS_IO] = "io",
        [STATUS_DEVICE] = "device",
        [STATUS_BAD_CHECKPOINT] = "bad_checkpoint",
    };
    json_begin(out, "fault");
    json_string(out, "code", codes[fault->status]);
    json_string(out, "text", fault->text);
    json_end(out);
    jsonl_flush(out);
}

int report_fault(struct jsonl_writer *out, const struct fault *fault) {
    struct fault ignored = {STATUS_DONE, ""};
    struct jsonl_writer to_stdout;
    if (out != NULL && out->file >= 0) {
        write_fault(out, fault);
    }
    jsonl_to_stdout(&to_stdout, &ignored);
    if (to_stdout.text != NULL) {
        write_fault(&to_stdout, fault);
    }
    return (int)fault->status;
}
