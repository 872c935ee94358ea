"""Kernels: single-device operations, their oracles, and timings in a process apart from the one that judges.

``spec`` is free of torch. The rest is imported by the worker and by techniques.
"""
