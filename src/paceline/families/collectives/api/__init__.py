"""What techniques of collectives build on: the contract, and the parts that several of them share."""
