// Lets every accept, fsync and fdatasync take longer (tests/chaos.py); loaded by LD_PRELOAD.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <time.h>

static void wait_longer(void) {
    struct timespec delay = {DELAY_MS / 1000, (DELAY_MS % 1000) * 1000000L};
    nanosleep(&delay, 0);
}

// Only of a connection that came, a non-blocking server asks again and again.
int accept(int socket, struct sockaddr *address, socklen_t *length) {
    int (*real)(int, struct sockaddr *, socklen_t *) = dlsym(RTLD_NEXT, "accept");
    int found = real(socket, address, length);
    if (found >= 0) wait_longer();
    return found;
}

int accept4(int socket, struct sockaddr *address, socklen_t *length, int flags) {
    int (*real)(int, struct sockaddr *, socklen_t *, int) = dlsym(RTLD_NEXT, "accept4");
    int found = real(socket, address, length, flags);
    if (found >= 0) wait_longer();
    return found;
}

int fsync(int file) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    wait_longer();
    return real(file);
}

int fdatasync(int file) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    wait_longer();
    return real(file);
}
