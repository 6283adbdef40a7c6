"""The Docker runtime: engine, images, networks, limits and volumes of nodes in containers."""
