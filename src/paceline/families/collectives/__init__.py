"""Collective communication: operations over ranks, their oracles, and the contract of techniques.

``spec`` is free of torch. The rest is imported by the worker and by techniques.
"""
