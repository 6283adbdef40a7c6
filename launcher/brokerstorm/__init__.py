"""The package that is installed: the tree lies beside this file, and `__main__` puts it on the path."""
