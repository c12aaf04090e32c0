/* wait.c - the command `wait`: sleeps until a process has ended, so that nobody has to look again
 * and again. A phone that is measured is not woken for it. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "../engine/os.h"
#include "../engine/text.h"
#include "commands.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* on every processor; headers older than Linux 5.3 lack it */
#endif

static const int64_t CHECK_PERIOD_NS = 50000000;

/* Sleeps without a wake-up until the process has ended or it is `due`; false: this kernel has no
 * such call, or a filter refuses it. A time limit of poll() would not count suspended time. */
static bool sleep_until_end(pid_t pid, int64_t due) {
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    if (process < 0) {
        return errno == ESRCH;
    }
    const struct itimerspec alarm = {
        .it_value = {.tv_sec = due / 1000000000, .tv_nsec = due % 1000000000}};
    int timer = (int)syscall(SYS_timerfd_create, CLOCK_BOOTTIME, TFD_CLOEXEC);
    if (timer < 0 || syscall(SYS_timerfd_settime, timer, TFD_TIMER_ABSTIME, &alarm, NULL) != 0) {
        return false;
    }
    struct pollfd either[] = {{.fd = process, .events = POLLIN}, {.fd = timer, .events = POLLIN}};
    int ready;
    do {
        ready = poll(either, 2, -1);
    } while (ready < 0 && errno == EINTR);
    return ready > 0;
}

/* A process that waits for its parent to reap it, a zombie, has ended. */
static bool has_ended(pid_t pid) {
    char path[64], text[256];
    if (kill(pid, 0) != 0) {
        return errno == ESRCH; /* EPERM: it is another user's */
    }
    format_text(path, sizeof path, "/proc/%d/stat", pid);
    const char *name_end = read_file_start(path, text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
    return name_end != NULL && strncmp(name_end, ") Z", 3) == 0;
}

int wait_main(int64_t pid, double seconds) {
    int64_t due = now_ns() + (int64_t)(seconds * 1e9);
    if (!sleep_until_end((pid_t)pid, due)) {
        for (int64_t now = now_ns(); now < due && !has_ended((pid_t)pid); now = now_ns()) {
            sleep_until(due < now + CHECK_PERIOD_NS ? due : now + CHECK_PERIOD_NS);
        }
    }
    return STATUS_DONE;
}
