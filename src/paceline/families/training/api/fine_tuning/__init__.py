"""Fine-tuning without gradients: slopes along random directions, and what ranks share of them."""
