"""Other implementations to compare with, and the random problems that all of them solve."""
