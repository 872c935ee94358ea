"""The families (and two internal ones: calibration and imported), each a plug-in package with a torch-free ``spec``."""
