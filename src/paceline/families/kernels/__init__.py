"""Kernels: single-device operations, their oracles, and timings in a process apart from the one that judges.

``spec`` and what it imports are free of torch. The worker imports the rest; techniques import ``api`` alone.
"""
