"""The run: launch the runner, gather what it says, make figures of it, and judge them."""
