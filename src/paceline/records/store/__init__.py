"""The store: a folder of sealed records, written, looked up, indexed, checked, merged and repaired."""
