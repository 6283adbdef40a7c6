"""The folder put on PYTHONPATH of Python workers; the package is `worker_kit`."""
