/* Two processes send a buffer there and back, over a socket or through shared memory, and check every byte of it.
   Prints what nccl-tests print of sendrecv: size, count, type, time, bandwidth, and how many values were wrong. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LEAST = 1 << 10, MOST = 1 << 22, FACTOR = 8, WARMUP = 3, ROUNDS = 40 };

struct channel {
    int socket;                            /* of this process; -1 through memory */
    atomic_int *mine, *theirs;             /* messages that were written for each side */
    unsigned char *outbox, *inbox;
    int sent, received;
};

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

static void whole(ssize_t (*act)(int, void *, size_t), int socket, unsigned char *data, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t moved = act(socket, data + done, size - done);
        if (moved <= 0)
            exit(3);
        done += moved;
    }
}

static ssize_t put(int socket, void *data, size_t size)
{
    return write(socket, data, size);
}

static void give(struct channel *c, unsigned char *data, size_t size)
{
    if (c->socket >= 0) {
        whole(put, c->socket, data, size);
        return;
    }
    memcpy(c->outbox, data, size);
    atomic_store(c->theirs, ++c->sent);
}

static void take(struct channel *c, unsigned char *data, size_t size)
{
    if (c->socket >= 0) {
        whole(read, c->socket, data, size);
        return;
    }
    c->received++;
    while (atomic_load(c->mine) < c->received)
        sched_yield();                     /* the other process may need this core */
    memcpy(data, c->inbox, size);
}

static void *shared(size_t size)
{
    void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        exit(2);
    return found;
}

int main(int count, char **words)
{
    int memory = count > 1 && !strcmp(words[1], "--memory"), ends[2], total_wrong = 0, sizes = 0;
    double bandwidths = 0;
    atomic_int *counts = shared(2 * sizeof(atomic_int));
    unsigned char *boxes = shared(2 * (size_t)MOST), *data = malloc(MOST), *back = malloc(MOST);
    if (!data || !back || socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 2;
    int child = fork() == 0;
    struct channel c = {memory ? -1 : ends[child], counts + child, counts + !child,
                        boxes + (child ? MOST : 0), boxes + (child ? 0 : MOST), 0, 0};
    if (!child)
        printf("#       size      count    type    time   algbw   busbw  #wrong\n"
               "#        (B)  (elements)            (us)  (GB/s)  (GB/s)\n");
    for (size_t size = LEAST; size <= MOST; size *= FACTOR) {
        double began = 0;
        int wrong = 0;
        for (size_t i = 0; i < size; i++)
            data[i] = (unsigned char)(i * 31 + size);
        for (int round = -WARMUP; round < ROUNDS; round++) {
            if (round == 0)
                began = seconds();
            if (child) {
                take(&c, back, size);
                give(&c, back, size);
            } else {
                give(&c, data, size);
                take(&c, back, size);
            }
        }
        if (child)
            continue;
        double one_way = (seconds() - began) / ROUNDS / 2, rate = 1e-9 * size / one_way;
        for (size_t i = 0; i < size; i++)
            wrong += back[i] != data[i];
        printf("%12zu %11zu   uint8 %7.2f %7.3f %7.3f %7d\n", size, size, 1e6 * one_way, rate, rate, wrong);
        total_wrong += wrong;
        bandwidths += rate;
        sizes++;
    }
    if (child)
        _exit(0);
    wait(NULL);
    printf("# Out of bounds values : %d %s\n# Avg bus bandwidth    : %.4f\n", total_wrong,
           total_wrong ? "FAILED" : "OK", bandwidths / sizes);
    return total_wrong != 0;
}
