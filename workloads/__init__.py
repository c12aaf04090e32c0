"""What is spoken: nouns, messages, units, faults, workloads and the heat model. Runs nowhere."""
