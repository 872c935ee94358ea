"""What operations of kernels share: gate, timed passes, parts of oracles, figures; nothing in it names one of them."""
