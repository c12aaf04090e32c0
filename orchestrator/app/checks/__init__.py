"""What `farm doctor` looks at, from this computer to the services of a lab."""
