"""Tools and downloads: Java, Go, jars from Maven coordinates, and the cache they share."""
