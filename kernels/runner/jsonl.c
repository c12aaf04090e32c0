/* say.c - see say.h. Written by hand, since thousands of readings a run must cost next to nothing. */
#include "say.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "system.h"

static void put(struct say *say, const char *text, size_t length) {
    if (say->used + length <= say->size) {
        memcpy(say->text + say->used, text, length);
    }
    say->used += length; /* beyond size: say_end() drops the line */
}

static void put_char(struct say *say, char letter) {
    if (say->used < say->size) {
        say->text[say->used] = letter;
    }
    say->used++;
}

static bool make_room(struct say *say, size_t room) {
    say->size = room + RUNNER_LINE_BYTES_MAX;
    say->used = say->line = 0;
    say->text = malloc(say->size);
    return say->text != NULL || fault_say(say->fault, RUNNER_OUT_OF_MEMORY, "no memory for lines");
}

bool say_open(struct say *say, const char *folder, const char *name, bool append, size_t room,
              struct fault *fault) {
    *say = (struct say){.file = -1, .fault = fault};
    compose(say->name, sizeof say->name, "%s", name);
    char path[PATH_BYTES];
    if (!make_room(say, room)) {
        return false;
    }
    if (!join_path(path, folder, name)) {
        return fault_say(fault, RUNNER_IO, "the folder's path is too long");
    }
    say->file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC), 0644);
    if (say->file < 0) {
        return fault_say(fault, RUNNER_IO, "cannot write %.200s: %s", path, system_reason());
    }
    say->bytes = lseek(say->file, 0, SEEK_END);
    char last = '\n';
    if (say->bytes > 0 && pread(say->file, &last, 1, say->bytes - 1) == 1 && last != '\n') {
        put_char(say, '\n'); /* somebody died in mid-line here */
    }
    return true;
}

void say_aloud(struct say *say, struct fault *fault) {
    *say = (struct say){.file = STDOUT_FILENO, .bytes = -1, .fault = fault, .name = "stdout"};
    make_room(say, 0);
}

void say_begin(struct say *say, const char *kind) {
    if (say->size - say->used < RUNNER_LINE_BYTES_MAX) {
        say_flush(say);
    }
    say->line = say->used;
    put(say, "{\"line\":\"", 9);
    put(say, kind, strlen(kind));
    put_char(say, '"');
}

static void put_name(struct say *say, const char *name) {
    char before = say->used > say->line && say->used <= say->size ? say->text[say->used - 1] : '[';
    if (before != '[' && before != '{') {
        put_char(say, ',');
    }
    if (name != NULL) {
        put_char(say, '"');
        put(say, name, strlen(name));
        put(say, "\":", 2);
    }
}

void say_int(struct say *say, const char *name, int64_t value) {
    char digits[NUMBER_BYTES];
    put_name(say, name);
    if (value < 0) {
        put_char(say, '-');
    }
    put(say, digits, print_whole(digits, value < 0 ? 0 - (uint64_t)value : (uint64_t)value, 10));
}

void say_real(struct say *say, const char *name, double value) {
    char digits[NUMBER_BYTES];
    if (!isfinite(value)) {
        say_null(say, name);
        return;
    }
    put_name(say, name);
    put(say, digits, print_number(digits, value));
}

void say_raw(struct say *say, const char *name, const char *json) {
    put_name(say, name);
    put(say, json, strlen(json));
}

void say_flag(struct say *say, const char *name, bool value) {
    say_raw(say, name, value ? "true" : "false");
}

void say_null(struct say *say, const char *name) { say_raw(say, name, "null"); }

/* Bytes of the UTF-8 character that begins here, or 0 where none does. */
static size_t character_at(const unsigned char *at, size_t left) {
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

/* How many of the next bytes stand in JSON as they are: nearly all that a kernel writes. */
static size_t plain_bytes(const char *text, size_t length) {
    size_t plain = 0;
    while (plain < length && text[plain] >= ' ' && text[plain] < 0x7f && text[plain] != '"' &&
           text[plain] != '\\') {
        plain++;
    }
    return plain;
}

/* One character that does not stand as it is; answers how many bytes it had. */
static size_t put_character(struct say *say, const char *text, size_t length) {
    static const char hex[] = "0123456789abcdef";
    unsigned char letter = (unsigned char)*text;
    size_t bytes = character_at((const unsigned char *)text, length);
    if (bytes == 0) {
        put_char(say, '?');
        return 1;
    }
    if (letter < ' ' || letter == 0x7f) {
        char code[] = {'\\', 'u', '0', '0', hex[letter >> 4], hex[letter & 15]};
        put(say, code, sizeof code);
        return 1;
    }
    if (letter == '"' || letter == '\\') {
        put_char(say, '\\');
    }
    put(say, text, bytes);
    return bytes;
}

void say_text(struct say *say, const char *name, const char *text, size_t length) {
    put_name(say, name);
    put_char(say, '"');
    for (size_t i = 0; i < length;) {
        size_t plain = plain_bytes(text + i, length - i);
        put(say, text + i, plain);
        i += plain;
        i += i < length ? put_character(say, text + i, length - i) : 0;
    }
    put_char(say, '"');
}

void say_word(struct say *say, const char *name, const char *word) {
    say_text(say, name, word, strlen(word));
}

void say_open_list(struct say *say, const char *name, char bracket) {
    put_name(say, name);
    put_char(say, bracket);
}

void say_close_list(struct say *say, char bracket) { put_char(say, bracket); }

size_t say_room(const struct say *say) {
    size_t used = say->used - say->line;
    return used < RUNNER_LINE_BYTES_MAX ? RUNNER_LINE_BYTES_MAX - used : 0;
}

void say_end(struct say *say) {
    put(say, "}\n", 2);
    if (say->used > say->size || say->used - say->line > RUNNER_LINE_BYTES_MAX) {
        say->used = say->line;
    }
}

bool say_flush(struct say *say) {
    size_t done = 0;
    while (done < say->used) {
        ssize_t count = write(say->file, say->text + done, say->used - done);
        if (count <= 0) {
            fault_say(say->fault, RUNNER_IO, "cannot write %s: %s", say->name, system_reason());
            if (say->bytes >= 0 && ftruncate(say->file, say->bytes) != 0) {
                /* The torn line stays; whoever reads finds no end behind it. */
            }
            say->used = say->line = 0;
            return false;
        }
        done += (size_t)count;
    }
    say->bytes += say->bytes >= 0 ? (int64_t)done : 0;
    say->used = say->line = 0;
    return true;
}

static void say_one_fault(struct say *say, const struct fault *fault) {
    static const char *const codes[] = {
        [RUNNER_USAGE] = "usage",
        [RUNNER_BAD_PLAN] = "bad_plan",
        [RUNNER_UNSUPPORTED] = "unsupported",
        [RUNNER_OUT_OF_MEMORY] = "out_of_memory",
        [RUNNER_WRONG_ANSWER] = "wrong_answer",
        [RUNNER_STOPPED] = "stopped",
        [RUNNER_IO] = "io",
        [RUNNER_DEVICE] = "device",
    };
    say_begin(say, "fault");
    say_word(say, "code", codes[fault->exit]);
    say_word(say, "text", fault->text);
    say_end(say);
    say_flush(say);
}

int say_fault(struct say *say, const struct fault *fault) {
    struct fault silent = {RUNNER_DONE, ""};
    struct say aloud;
    if (say != NULL && say->file >= 0) {
        say_one_fault(say, fault);
    }
    say_aloud(&aloud, &silent);
    if (aloud.text != NULL) {
        say_one_fault(&aloud, fault);
    }
    return (int)fault->exit;
}
