"""CPU, memory and disk limits of nodes that run as processes."""
