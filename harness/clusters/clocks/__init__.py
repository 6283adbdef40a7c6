"""Wall clocks of nodes that are not the machine's."""
