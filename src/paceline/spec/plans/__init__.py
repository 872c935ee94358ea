"""Plans: the points of suites on a runner, what is compared at them, and how long that takes."""
