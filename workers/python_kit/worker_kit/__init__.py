"""The kit of Python workers: payload, capture segments, protocol and schedule.

Standard library only, so that it runs with any client library in any virtual environment. It
restates the layouts of harness/records.py as struct formats; golden bytes hold the two together.
"""
