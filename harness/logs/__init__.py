"""The logs of the brokers and clients of a run: where they lie, and their lines around a time and a
name.

How a line of a log begins is a fact of its system (`System.log_stamps`) or of its worker; a run
keeps the form of its workers in its manifest.
"""

from harness.logs.around import LogLine, LogLines, RunLogs, Subject
from harness.logs.files import LogFile, log_files
from harness.logs.reading import Excerpt, LogEntry

__all__ = [
    "Excerpt",
    "LogEntry",
    "LogFile",
    "LogLine",
    "LogLines",
    "RunLogs",
    "Subject",
    "log_files",
]
