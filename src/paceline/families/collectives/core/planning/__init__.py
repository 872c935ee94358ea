"""What suites may ask for and plans know of it, free of torch: parameters, rules, sizes, metrics, promises."""
