"""Commands that measure, on this machine or from job folders, and what they say beforehand of time and memory."""
