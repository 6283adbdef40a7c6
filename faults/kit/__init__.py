"""Building blocks of the kinds: parameters, targets, injections, and what several kinds share."""
