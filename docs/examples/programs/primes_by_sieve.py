"""Counts the primes below a number by crossing out multiples (Eratosthenes)."""

import sys

limit = int(sys.argv[1])
prime = bytearray([1]) * limit
prime[:2] = bytes(2)
for number in range(2, int(limit**0.5) + 1):
    if prime[number]:
        prime[number * number :: number] = bytes(len(range(number * number, limit, number)))
print(sum(prime), "primes")
