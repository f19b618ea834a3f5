"""Transport: the collectives of one bucket, from launch to the end of the wait."""
