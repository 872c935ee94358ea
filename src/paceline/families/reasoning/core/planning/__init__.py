"""What suites may ask for and plans know of it, free of torch: names, parameters, rules, metrics, quantities."""
