"""Metrics of reasoning that are one file each: a declaration, and a formula over what a launch measured."""
