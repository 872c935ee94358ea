"""What families and operations declare: parameters, metrics with their contracts, arguments, memory, quantities."""
