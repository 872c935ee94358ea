"""Candidates in a sandbox: files that nobody has reviewed compute there, and everything that decides happens outside.

``worker`` runs inside, ``process`` is the judge's handle to it, ``candidate`` draws new inputs for each timed call,
keeps the clock that counts and judges every output; ``handover`` says what a call costs that computes nothing.
"""
