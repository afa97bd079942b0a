"""The workflows that ship with the program: one file each."""
