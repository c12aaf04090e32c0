"""Published studies: their claims, evaluated with the results of this lab."""
