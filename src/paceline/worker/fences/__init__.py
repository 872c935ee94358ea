"""What keeps a technique inside its contract: its source is judged, its calls are guarded, the harness is sealed."""
