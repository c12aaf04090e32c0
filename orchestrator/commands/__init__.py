"""The commands of the middle, one file per noun: read, call one function, print."""
