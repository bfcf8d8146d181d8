"""What both languages share. Nothing here imports triton, tilus, or the benchmark."""
