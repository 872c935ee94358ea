"""Runner profiles: where cases are executed, in processes, containers, clusters or pods."""
