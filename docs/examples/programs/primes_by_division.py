"""Counts the primes below a number by dividing each by the primes before it."""

import sys

limit = int(sys.argv[1])
primes: list[int] = []
for number in range(2, limit):
    for prime in primes:
        if prime * prime > number:
            primes.append(number)
            break
        if number % prime == 0:
            break
    else:
        primes.append(number)
print(len(primes), "primes")
