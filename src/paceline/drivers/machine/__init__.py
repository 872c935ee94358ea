"""The machine that is measured: who holds it, whether it is idle, which runners broke on it, what was left behind."""
