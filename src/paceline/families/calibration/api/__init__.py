"""What techniques of calibration may import."""
