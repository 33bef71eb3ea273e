"""What goes wrong in distributed training, reproduced on CPU, and advice of guides beside measurements: chapter 11."""
