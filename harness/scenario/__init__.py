"""The scenario file: read, checked, and described by a JSON Schema."""
