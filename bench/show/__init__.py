"""Tables, matrix, plots and filled-in documents, from rows only: no GPU, no clock."""
