"""Send-receive: buffers shift to the next rank."""
