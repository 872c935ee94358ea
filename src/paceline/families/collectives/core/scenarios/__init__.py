"""Scripted scenarios with faults: peers that die, join, stall, or are slow.

Peers are child processes of the ranks, so that killing one costs the scenario's subject its peer and the harness
nothing. A rank starts its peer, talks to it over pipes, and observes it with its own clock.
"""
