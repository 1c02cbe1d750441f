"""The ways out of a cycle: reports for people and for CI, and the file of spans."""
