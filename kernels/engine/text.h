/* text.h - numbers and sentences to and from text, without the C library's printf and strtod: those
 * bring 128-bit arithmetic along, a tenth of the size of the static build. And a hash. */
#ifndef FARMHAND_TEXT_H
#define FARMHAND_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A subset of snprintf: %s, %.Ns, %d, %lld, %llu, %llx and %%. The text always ends with a zero
 * byte, and what does not fit is cut off. Returns the length, which is less than `size`. */
__attribute__((format(printf, 3, 4))) size_t format_text(char *text, size_t size,
                                                         const char *format, ...);
size_t format_text_list(char *text, size_t size, const char *format, va_list values);

/* Reads a decimal number: the whole word and nothing else (-12, 0.5, 1e-05). */
bool parse_number(const char *word, double *value);

/* Writes a finite number with nine significant digits, as JSON writes it; returns the length. */
enum { NUMBER_BYTES = 32 };
size_t format_number(char text[NUMBER_BYTES], double value);

/* Continues a hash with more bytes. */
uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count);

/* Writes the digits of an integer in base 10 or 16; returns the length. */
size_t format_integer(char text[NUMBER_BYTES], uint64_t value, unsigned base);

#endif
