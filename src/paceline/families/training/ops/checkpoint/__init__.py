"""Data parallelism whose state is saved meanwhile: who saves when, what training waits for, and what comes back."""
