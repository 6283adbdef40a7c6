"""Plays rounds: variants, reproductions, bisections, the search for the smallest, nights."""
