"""The Kubernetes driver: its manifests as data, and what a cluster says about pods."""
