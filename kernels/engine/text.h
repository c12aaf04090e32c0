/* text.h - numbers and sentences, in and out, without the C library's printf and strtod: those bring
 * arithmetic in 128 bits along, and are a tenth of what the static build may weigh. */
#ifndef FARMHAND_TEXT_H
#define FARMHAND_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As snprintf, of which it knows %s, %.Ns, %d, %lld, %llu, %llx and %%; the text always ends with a
 * zero byte. Answers the length, which is less than size; what did not fit is cut. */
__attribute__((format(printf, 3, 4))) size_t compose(char *text, size_t size, const char *format,
                                                     ...);
size_t compose_list(char *text, size_t size, const char *format, va_list values);

/* A decimal number, the whole word and nothing else: -12, 0.5, 1e-05. */
bool parse_number(const char *word, double *value);

/* Nine digits of a finite number, as JSON has them. */
enum { NUMBER_BYTES = 32 };
size_t print_number(char text[NUMBER_BYTES], double value);

/* Digits of a whole number in base 10 or 16. */
size_t print_whole(char text[NUMBER_BYTES], uint64_t value, unsigned base);

#endif
