/* text.c - see text.h. */
#include "text.h"

#include <string.h>

enum { DIGITS = 9, EXPONENT_MAX = 400 };

static bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

/* Returns value * 10^exponent, rounded once where the power of ten is exact. */
static double scale(double value, int exponent) {
    double power = 1, base = 10;
    for (int rest = exponent < 0 ? -exponent : exponent; rest > 0; rest /= 2) {
        power *= rest % 2 == 1 ? base : 1;
        base *= base;
    }
    return exponent < 0 ? value / power : value * power;
}

bool parse_number(const char *word, double *value) {
    const char *at = word + (*word == '-' || *word == '+');
    uint64_t digits = 0;
    int exponent = 0, seen = 0;
    for (bool point = false; is_digit(*at) || (*at == '.' && !point); at++) {
        if (*at == '.') {
            point = true;
            continue;
        }
        seen++;
        if (digits < UINT64_MAX / 100) {
            digits = digits * 10 + (uint64_t)(*at - '0');
            exponent -= point;
        } else {
            exponent += !point; /* digits beyond the precision of a double */
        }
    }
    if (seen == 0 || seen > EXPONENT_MAX) {
        return false;
    }
    if (*at == 'e' || *at == 'E') {
        bool minus = at[1] == '-';
        at += 1 + (at[1] == '-' || at[1] == '+');
        int written = 0;
        if (!is_digit(*at)) {
            return false;
        }
        for (; is_digit(*at); at++) {
            written = written < EXPONENT_MAX ? written * 10 + (*at - '0') : EXPONENT_MAX;
        }
        exponent += minus ? -written : written;
    }
    double number = (double)digits;
    /* In two steps: 10^400 is not a double, but a tiny number with many digits is. */
    number = exponent < -300 ? scale(scale(number, -300), exponent + 300) : scale(number, exponent);
    *value = *word == '-' ? -number : number;
    return *at == '\0' && number <= 1e300;
}

size_t format_integer(char text[NUMBER_BYTES], uint64_t value, unsigned base) {
    char reversed[NUMBER_BYTES];
    size_t count = 0;
    do {
        reversed[count++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value > 0);
    for (size_t i = 0; i < count; i++) {
        text[i] = reversed[count - 1 - i];
    }
    return count;
}

/* Writes nine significant digits of a positive number; returns e where it is d.dddddddd * 10^e. */
static int digits_of(double value, char digits[NUMBER_BYTES]) {
    int exponent = 0;
    for (double rest = value; rest >= 10; rest /= 10) {
        exponent++;
    }
    for (double rest = value; rest < 1; rest *= 10) {
        exponent--;
    }
    uint64_t whole = (uint64_t)(scale(value, DIGITS - 1 - exponent) + 0.5);
    if (whole >= 1000000000) {
        whole = (whole + 5) / 10;
        exponent++;
    } else if (whole < 100000000) {
        whole = (uint64_t)(scale(value, DIGITS - exponent) + 0.5);
        exponent--;
    }
    format_integer(digits, whole, 10);
    return exponent;
}

size_t format_number(char text[NUMBER_BYTES], double value) {
    char digits[NUMBER_BYTES];
    size_t used = 0, count = DIGITS;
    if (value < 0) {
        text[used++] = '-';
        value = -value;
    }
    if (value == 0) {
        text[used++] = '0';
        return used;
    }
    int exponent = digits_of(value, digits);
    while (count > 1 && digits[count - 1] == '0') {
        count--;
    }
    bool plain = exponent >= -4 && exponent < DIGITS;
    int before = plain && exponent >= 0 ? exponent + 1 : 1; /* digits before the decimal point */
    int zeros = plain && exponent < 0 ? -exponent : 0;      /* zeros before the first digit */
    size_t at = 0;
    for (int i = 0; i < before; i++) {
        text[used++] = zeros > 0 || at >= count ? '0' : digits[at++];
    }
    if (at < count) {
        text[used++] = '.';
        for (int i = 1; i < zeros; i++) {
            text[used++] = '0';
        }
        while (at < count) {
            text[used++] = digits[at++];
        }
    }
    if (!plain) {
        text[used++] = 'e';
        text[used++] = exponent < 0 ? '-' : '+';
        used += format_integer(text + used, (uint64_t)(exponent < 0 ? -exponent : exponent), 10);
    }
    return used;
}

/* A text that grows up to `size` bytes. */
struct text_buffer {
    char *text;
    size_t size, used;
};

static void append(struct text_buffer *buffer, const char *text, size_t length) {
    size_t room = buffer->size - 1 - buffer->used;
    length = length < room ? length : room;
    memcpy(buffer->text + buffer->used, text, length);
    buffer->used += length;
}

static void append_signed(struct text_buffer *buffer, long long value) {
    char digits[NUMBER_BYTES];
    if (value < 0) {
        append(buffer, "-", 1);
    }
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    append(buffer, digits, format_integer(digits, size, 10));
}

static void append_string(struct text_buffer *buffer, const char *text, size_t limit) {
    size_t length = 0;
    while (length < limit && text[length] != '\0') {
        length++;
    }
    append(buffer, text, length);
}

size_t format_text_list(char *text, size_t size, const char *format, va_list values) {
    struct text_buffer buffer = {text, size, 0};
    char digits[NUMBER_BYTES];
    for (const char *at = format; *at != '\0'; at++) {
        if (*at != '%') {
            append(&buffer, at, 1);
            continue;
        }
        size_t limit = size;
        if (*++at == '.') {
            for (limit = 0, at++; is_digit(*at); at++) {
                limit = limit * 10 + (size_t)(*at - '0');
            }
        }
        bool wide = at[0] == 'l' && at[1] == 'l';
        at += wide ? 2 : 0;
        if (*at == 's') {
            append_string(&buffer, va_arg(values, const char *), limit);
        } else if (*at == 'd') {
            append_signed(&buffer, wide ? va_arg(values, long long) : va_arg(values, int));
        } else if (*at == 'u' || *at == 'x') {
            uint64_t value = va_arg(values, unsigned long long);
            append(&buffer, digits, format_integer(digits, value, *at == 'u' ? 10 : 16));
        } else {
            append(&buffer, at, 1);
        }
    }
    text[buffer.used] = '\0';
    return buffer.used;
}

size_t format_text(char *text, size_t size, const char *format, ...) {
    va_list values;
    va_start(values, format);
    size_t length = format_text_list(text, size, format, values);
    va_end(values);
    return length;
}

uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    for (; count >= sizeof hash; at += sizeof hash, count -= sizeof hash) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    for (; count > 0; at++, count--) {
        hash = (hash ^ *at) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    return hash;
}
