"""What runs beside the accelerator: torch, numpy and the standard library only."""
