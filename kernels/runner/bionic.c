/* bionic.c - what Android's C library expects of an executable that was not linked by the NDK.
 *
 * Only the bionic build contains this file. The runner is compiled against musl's headers and uses
 * no layout in which musl and bionic differ; the functions that differ are defined here. */
#include <stddef.h>
#include <stdlib.h>

int main(int count, char **words);

/* Constructors and destructors; a C program has none. */
struct structors {
    void (**before)(void), (**at_start)(void), (**at_end)(void);
};

_Noreturn void __libc_init(void *stack, void (*at_exit)(void), int (*run)(int, char **),
                           const struct structors *structors);
int *__errno(void);

int *__errno_location(void) { return __errno(); }

/* Android has aligned_alloc() only since version 9. */
void *aligned_alloc(size_t alignment, size_t size) {
    void *start = NULL;
    return posix_memalign(&start, alignment, size) == 0 ? start : NULL;
}

__attribute__((used)) static _Noreturn void start_libc(void *stack) {
    static const struct structors none = {NULL, NULL, NULL};
    __libc_init(stack, NULL, main, &none);
}

/* The kernel passes the arguments on the stack; start_libc() needs their address. */
__asm__(".globl _start\n"
        ".type _start,%function\n"
        "_start:\n"
#if defined(__aarch64__)
        "mov x29, #0\n"
        "mov x30, #0\n"
        "mov x0, sp\n"
        "b start_libc\n"
#else
        "xor %ebp, %ebp\n"
        "mov %rsp, %rdi\n"
        "and $-16, %rsp\n"
        "call start_libc\n"
#endif
);
