"""What all operations of training share: data, proofs, the loop, and the figures; it names none of them."""
