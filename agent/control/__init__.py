"""Control: what is changed on a phone so that a number may count, and how it is put back."""
