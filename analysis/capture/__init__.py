"""The capture as it is read: buckets of columns, the context they are judged in, logs of faults and
hangs."""
