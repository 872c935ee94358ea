/* The triad a = b + s * c over arrays that no cache holds, after STREAM (McCalpin 1995): 24 bytes an element.
   Prints the best of several passes, and whether the result is right. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { COUNT = 16 << 20, PASSES = 5 };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

int main(void)
{
    double *a = malloc(sizeof(double) * COUNT), *b = malloc(sizeof(double) * COUNT);
    double *c = malloc(sizeof(double) * COUNT), best = 1e9;
    if (!a || !b || !c)
        return 2;
    for (long i = 0; i < COUNT; i++) {
        a[i] = 0.0;
        b[i] = 1.0;
        c[i] = i % 7;
    }
    for (int pass = 0; pass < PASSES; pass++) {
        double began = seconds();
        for (long i = 0; i < COUNT; i++)
            a[i] = b[i] + 3.0 * c[i];
        double took = seconds() - began;
        best = took < best ? took : best;
    }
    for (long i = 0; i < COUNT; i++)
        if (a[i] != 1.0 + 3.0 * (i % 7)) {
            printf("wrong at %ld\n", i);
            return 1;
        }
    printf("Triad: %.1f MB/s\nsolution validates\n", 24e-6 * COUNT / best);
    return 0;
}
