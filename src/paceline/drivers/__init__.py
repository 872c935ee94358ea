"""Drivers: the code behind runner profiles.

``job`` builds a self-contained folder, a driver starts its launcher somewhere, ``execute`` follows the events, and
``collect`` turns them into a record.
"""
