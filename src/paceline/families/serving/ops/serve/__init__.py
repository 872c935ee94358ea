"""``serve``: calls go to the reference engine over HTTP, and the technique schedules it."""
