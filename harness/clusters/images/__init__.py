"""Builds images and the compose plugin where no registry answers."""
