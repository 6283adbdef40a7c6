"""What the user writes: the scenario file, read, checked and described by a JSON Schema."""
