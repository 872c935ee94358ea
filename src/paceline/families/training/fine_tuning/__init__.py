"""Fine-tuning without gradients: slopes along random directions, what ranks share of them, and who joins late."""
