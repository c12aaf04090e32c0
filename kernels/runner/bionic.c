/* bionic.c - what Android's C library expects of an executable that no NDK has linked.
 *
 * Only the bionic build has this file. It is compiled against musl's headers, whose layouts the
 * rest of the runner keeps away from; here stands what differs. */
#include <stddef.h>
#include <stdlib.h>

int main(int count, char **words);

/* Constructors and destructors, of which a C program has none. */
struct structors {
    void (**before)(void), (**at_start)(void), (**at_end)(void);
};

_Noreturn void __libc_init(void *stack, void (*at_exit)(void), int (*run)(int, char **),
                           const struct structors *structors);
int *__errno(void);

int *__errno_location(void) { return __errno(); }

/* Android has this one only since version 9. */
void *aligned_alloc(size_t alignment, size_t size) {
    void *start = NULL;
    return posix_memalign(&start, alignment, size) == 0 ? start : NULL;
}

__attribute__((used)) static _Noreturn void begin(void *stack) {
    static const struct structors none = {NULL, NULL, NULL};
    __libc_init(stack, NULL, main, &none);
}

/* The kernel leaves the arguments on the stack; begin() wants to know where. */
__asm__(".globl _start\n"
        ".type _start,%function\n"
        "_start:\n"
#if defined(__aarch64__)
        "mov x29, #0\n"
        "mov x30, #0\n"
        "mov x0, sp\n"
        "b begin\n"
#else
        "xor %ebp, %ebp\n"
        "mov %rsp, %rdi\n"
        "and $-16, %rsp\n"
        "call begin\n"
#endif
);
