"""The five families (and the internal calibration family), each a plug-in package with a torch-free ``spec``."""
