"""The load generator: schedules, requests, streams over HTTP, the raw log, and all that follows from it."""
