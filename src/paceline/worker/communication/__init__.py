"""What ranks send each other: the communicator that counts it, what carries it, its rules, its trace and its faults."""
