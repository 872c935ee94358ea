"""What techniques of training build on: the contract, the model, and the parts that several of them share."""
